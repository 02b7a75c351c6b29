"""`gymlab bench delta_iris`: seconds of an update of each component of Δ-IRIS beside those of the authors' program, and of dreams with and without a cache."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymlab.bench.measure import Repeats, failures, median_ratio
from gymlab.bench.peer_environment import check_peer_source, peer_python, peer_source_arguments, peer_worker
from gymlab.bench.plan import Plan
from gymlab.bench.processor import computes_bfloat16
from gymlab.bench.report import BenchReport, Check, Section, Table, number, percent, scaled, times
from gymlab.bench.show import show, show_arguments, status

HELP = "updates of Δ-IRIS beside those of its authors' program, and dreams with and without a cache"
PEER = "delta-iris"
PEER_PACKAGES = ["einops==0.8.0", "numpy==2.4.6"]
"""What their networks need beside torch; einops as they name it."""
REPOSITORY = "vmicheli/delta-iris"
PEER_FILE = "src/models/world_model.py"
PEER_DIRECTORY = Path(".venv-delta-iris")
PEER_SCRIPT = Path(__file__).parent / "peers" / "delta_iris_peer.py"
PRECISIONS = ("as written", "32-true")
"""Theirs: tokenizer and world model under bfloat16 autocast, and without."""
EXPERIMENT = "Crafter-v1:delta_iris"
COMPONENTS = ("tokenizer", "world_model", "controller")
PARTS = {
    "tokenizer": ("tokenizer, encode", "tokenizer, decode", "backward, clipping", "optimiser", "rest"),
    "world_model": (
        "frame tokens",
        "transformer",
        "heads",
        "backward, clipping",
        "optimiser",
        "rest",
    ),
    "controller": (
        "tokenizer, decode",
        "frame tokens",
        "transformer",
        "heads",
        "actor and slow copy",
        "backward, clipping",
        "optimiser",
        "rest",
    ),
}
"""What gymlab's time is told apart by, where words are known."""
FULL = {"sequences": 32, "starts": 86, "warmup": 1, "repeats": 1}
"""The authors' batches."""
FULL_PARTS = {"tokenizer": 4, "world_model": 1, "controller": 1}
"""Batches whose gradients are added up for a full one: the tokenizer's in one piece would take about 27 GB."""
DREAMS: dict[str, dict[str, Any]] = {
    "crafter": {"dreams": 5, "options": {}},
    "atari": {"dreams": 5, "options": {}},
    "tiny": {"dreams": 32, "options": {"resize_obs": [32, 32]}},
}
"""Dreams at once, and the fields that a size needs, by size."""
DREAM = {"steps": 20, "repeats": 2}
READS = round(500 * 32 * 21 / 10_000)
"""World-model updates of an epoch times steps of their batches, by steps collected: priorities let nearly all fall on new episodes."""
GOAL = 1.5
"""The authors' time, the shorter of both, divided by gymlab's."""
DREAM_GOAL = 3.0
"""Time without a cache divided by that with it."""


def update_job(library: str, precision: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """A job that times updates of every component."""
    job = {"task": "delta_iris", "library": library, "experiment": EXPERIMENT, "options": {}, "components": COMPONENTS}
    return job | {"parts": 1, "warmup": 1, **settings, "precision": precision, "seed": seed}


def dream_job(size: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """A job that times dreams at one size."""
    job = {"task": "delta_iris_dreams", "library": "gymlab", "experiment": EXPERIMENT, "size": size, "seed": seed}
    return job | {"threads": settings["threads"], "precision": settings["precision"], **DREAM, **DREAMS[size]}


def peer_precisions() -> tuple[str, ...]:
    """Those that the processor computes in: where it has to imitate bfloat16, an update of theirs takes many minutes."""
    import torch

    has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return PRECISIONS if has_bfloat16 else ("32-true",)


def measure_updates(plan: Plan, settings: dict[str, Any], peers: tuple[str, ...]) -> Section:
    """gymlab's updates, interleaved with those of the authors' program in these precisions."""
    jobs = {"gymlab": partial(update_job, "gymlab", settings["precision"], settings)}
    jobs |= {f"{PEER} {name}": partial(update_job, PEER, name, settings) for name in peers}
    measured = plan.interleave("delta_iris", jobs)
    ours, lines, shares, checks = measured["gymlab"], [], [], []
    data: dict[str, Any] = {key: value for key, value in settings.items() if key != "source"}
    for component in COMPONENTS:
        # The tokenizer itself makes words.
        anew = None if component == "tokenizer" else ours.median(f"{component}/anew")
        line = [component, number(ours.median(component)), number(anew)]
        ratios = {}
        for name in peers:
            theirs = measured[f"{PEER} {name}"]
            ratios[name] = median_ratio(theirs, ours, component)
            line += [number(theirs.median(component)), times(ratios[name])]
        if peers:
            faster = min((ratio for ratio in ratios.values() if ratio is not None), default=None)
            checks.append(Check(f"{component}: authors' faster one / gymlab's", faster, GOAL))
        lines.append(line)
        spent = [f"{part} {percent(ours.median(f'{component}/{part}'))}" for part in PARTS[component]]
        shares.append([component, ", ".join(spent)])
        data[component] = figures(measured, component) | {"times_faster": ratios, "words_anew_seconds": anew}
    title = (
        "Δ-IRIS for Crafter: seconds of an update, of {sequences} sequences of 21 frames, for the controller of {starts} dreams of 15 steps, "
        "{threads} thread(s), gymlab {precision}"
    ).format(**data)
    theirs_too = [text for name in peers for text in (f"authors {name} s", "faster")]
    tables = [
        Table(
            title, ["component", "gymlab s", "words anew s", *theirs_too], lines, note(data, peers, failures(measured))
        ),
        Table("Where gymlab's time goes", ["component", "shares"], shares, "Gradients of all parts are in backward."),
    ]
    return Section("updates", tables, data, checks)


def figures(measured: dict[str, Repeats], component: str) -> dict[str, Any]:
    """Medians of all that were measured, for the JSON report."""
    keys = {"seconds": component, "parameters": f"{component}/parameters"}
    return {key: {name: repeats.median(place) for name, repeats in measured.items()} for key, place in keys.items()}


def note(data: dict[str, Any], peers: tuple[str, ...], failed: list[str]) -> str:
    """Parameters of all, what differs, and what went wrong."""
    counts = []
    for component in COMPONENTS:
        distinct = dict.fromkeys(number(count) for count in data[component]["parameters"].values())
        counts.append(f"{component}: {' and '.join(distinct)}")
    said = [
        f"Learned parameters: {'; '.join(counts)}.",
        "The authors' controller is 32 bit either way; gymlab's world model reads a 22nd frame, whose words it learns too.",
        f"gymlab keeps the words of a step until the tokenizer learns again; at these settings an epoch reads each new step about {READS} times. "
        "Words anew: an update that has to find them all.",
    ]
    if peers and "as written" not in peers:
        said.append("This processor has no bfloat16, which the authors' program is written for: measured without.")
    return " ".join([*said, *dict.fromkeys(failed)])


def measure_dreams(plan: Plan, settings: dict[str, Any]) -> Section:
    """Dreams with the cache and without it, by size."""
    lines, checks, failed = [], [], []
    data: dict[str, Any] = {**DREAM, "threads": settings["threads"], "precision": settings["precision"]}
    for size, options in DREAMS.items():
        measured = plan.interleave(f"dreams {size}", {"gymlab": partial(dream_job, size, settings)})
        found = measured["gymlab"]
        line = [size, number(options["dreams"])]
        for what in ("whole", "words"):
            line += [number(found.median(f"{what}/{way}")) for way in ("with", "without")]
            line.append(times(found.median(f"{what}/ratio")))
        lines.append(line)
        ratio = found.median("whole/ratio")
        data[size] = {
            f"{what}/{key}": found.median(f"{what}/{key}")
            for what in ("whole", "words")
            for key in ("with", "without", "ratio")
        }
        checks.append(Check(f"{size}: dreams without / with the cache", ratio, DREAM_GOAL))
        failed += failures(measured)
    title = "Dreams of {steps} steps behind 6 frames: seconds with the transformer's keys and values kept, and without, {threads} thread(s), {precision}"
    columns = ["size", "dreams", "with s", "without s", "faster", "words alone: with s", "without s", "faster"]
    said = "Without, the whole sequence is read again for each word; frames' tokens are kept. Words alone: without drawing frames and making tokens of them, which costs both the same."
    return Section(
        "dreams", [Table(title.format(**data), columns, lines, " ".join([said, *dict.fromkeys(failed)]))], data, checks
    )


def measure_full(plan: Plan, settings: dict[str, Any]) -> Section:
    """Updates of gymlab's components at the authors' batch sizes, each in a process of its own, for its memory."""
    lines, failed = [], []
    data: dict[str, Any] = {**FULL, "threads": settings["threads"], "precision": settings["precision"]}
    for component, parts in FULL_PARTS.items():
        chosen = {**settings, **FULL, "components": [component], "parts": parts}
        job = partial(update_job, "gymlab", settings["precision"], chosen)
        measured = plan.interleave(f"full {component}", {"gymlab": job}, repeats=1)
        seconds, peak = (measured["gymlab"].median(key) for key in (component, "peak_bytes"))
        batch = FULL["starts" if component == "controller" else "sequences"]
        lines.append([component, number(batch), number(parts), number(seconds), number(scaled(peak, 1e-6))])
        data[component] = {"batch": batch, "parts": parts, "seconds": seconds, "peak_bytes": peak}
        failed += failures(measured)
    title = "The authors' full batches: seconds of an update and peak memory of the process in MB, {threads} thread(s), {precision}"
    columns = ["component", "batch", "in parts", "seconds", "MB"]
    return Section("full", [Table(title.format(**data), columns, lines, " ".join(dict.fromkeys(failed)))], data)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument("--steps", type=int, default=3, help="timed updates of a component in a repeat (default 3)")
    parser.add_argument("--sequences", type=int, default=2, help="sequences in a batch (default 2)")
    parser.add_argument("--starts", type=int, default=5, help="dreams in an update of the controller (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both (default 1)")
    parser.add_argument(
        "--precision",
        choices=["32-true", "bf16-mixed"],
        help="gymlab's precision (default: bf16-mixed, as the authors', where the processor multiplies in it, else 32-true)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="also a few updates of gymlab's at the authors' full batch sizes: minutes, and 10 GB of memory",
    )
    peer_source_arguments(parser, REPOSITORY, PEER_DIRECTORY)
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    source: Path | None = arguments.peer_source
    check_peer_source(source, REPOSITORY, PEER_FILE)
    settings = {name: getattr(arguments, name) for name in ("sequences", "starts", "threads")}
    settings["precision"] = arguments.precision or ("bf16-mixed" if computes_bfloat16() else "32-true")
    settings["repeats"] = arguments.steps
    command = (
        f"gymlab bench delta_iris --repeats {arguments.repeats} --steps {arguments.steps} --sequences {arguments.sequences} "
        f"--starts {arguments.starts} --threads {arguments.threads}{' --full' if arguments.full else ''}"
    )
    peers = () if source is None else peer_precisions()
    with status(quiet=arguments.json) as say:
        plan = replace(Plan(repeats=arguments.repeats, timeout=3600.0), say=say)
        if source is not None:
            settings["source"] = str(source.absolute())
            python = peer_python(arguments.peer_env, PEER_PACKAGES, say)
            plan = replace(plan, worker=peer_worker(PEER, python, PEER_SCRIPT))
        sections = [measure_updates(plan, settings, peers), measure_dreams(plan, settings)]
        if arguments.full:
            sections.append(measure_full(plan, settings))
    return show(BenchReport("delta_iris", command, sections), arguments)
