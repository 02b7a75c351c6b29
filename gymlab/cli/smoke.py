"""Train each shipped experiment briefly, in a process of its own, and say PASS, FAIL or SKIP.

A training is made small: at most two environments, two rollouts, minibatches that fit, one evaluation episode, no video.
SKIP means that a package (or a ROM) is not installed. The code is 1 when anything fails."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_plugins, at_least_one
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.cli.attempts import Outcome

USAGE = "gymlab smoke [options]"
EXAMPLES = """  gymlab smoke                             every experiment, 100 steps each
  gymlab smoke --filter cartpole           those with `cartpole` in their name
  gymlab smoke --filter atari --random     a family, with random actions and no learning
  gymlab smoke --limit 5 --timesteps 1000 --jobs 1 --json"""
HEAVY = ("lightning_fabric", "matplotlib.figure", "matplotlib.backends.backend_agg")
COLOURS = {"PASS": "green", "FAIL": "red", "SKIP": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--filter", default="", metavar="WORD", help="only experiments or families with it in their name"
    )
    parser.add_argument("--limit", type=at_least_one, metavar="N", help="the first N only")
    parser.add_argument(
        "--timesteps", type=at_least_one, default=100, metavar="N", help="environment steps of each (default: 100)"
    )
    parser.add_argument("--random", action="store_true", help="only step the environments, with random actions")
    parser.add_argument("--jobs", type=at_least_one, metavar="N", help="how many at the same time (default: cores)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="time that each may take (default: 300)"
    )
    parser.add_argument("--logs", metavar="DIR", help="where logs of failures go (default: a temporary directory)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the result as JSON to this file")
    parser.add_argument("--config-dir", metavar="DIR", help="a conf directory that lies on top of ./conf and ours")
    add_plugins(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Try them all."""
    from gymlab.cli.attempts import Outcome, attempt_all
    from gymlab.cli.output import show_json
    from gymlab.config.derive import cores

    chosen = experiments(arguments.config_dir, arguments.filter)[: arguments.limit]
    if not chosen:
        raise GymlabError(f"No experiment has {arguments.filter!r} in its name; `gymlab list` shows them.")
    skipped = {name: lines for name, lines in chosen if lines}
    names = [name for name, lines in chosen if not lines]
    directory = Path(arguments.logs) if arguments.logs else Path(tempfile.mkdtemp(prefix="gymlab-smoke-"))
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    outcomes = [Outcome(name, "SKIP", 0.0, lines) for name, lines in skipped.items()]
    for outcome in () if arguments.json else outcomes:
        show(outcome)
    import_what_all_need(arguments.plugin)
    work = partial(_work, arguments.timesteps, arguments.random, directory / "runs", arguments.config_dir)
    for outcome in attempt_all(names, work, directory, arguments.jobs or cores(), arguments.timeout):
        outcomes.append(outcome)
        if not arguments.json:
            show(outcome)
    shutil.rmtree(directory / "runs", ignore_errors=True)
    if not arguments.logs and all(outcome.state != "FAIL" for outcome in outcomes):
        shutil.rmtree(directory)
    counts, seconds = Counter(outcome.state for outcome in outcomes), time.monotonic() - started
    result = {
        "passed": counts["PASS"],
        "failed": counts["FAIL"],
        "skipped": counts["SKIP"],
        "seconds": seconds,
        "timesteps": arguments.timesteps,
        "random": arguments.random,
        "results": [asdict(outcome) for outcome in outcomes],
    }
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2))
    if arguments.json:
        show_json(result)
    else:
        print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped in {seconds:.0f} s")
    return 1 if counts["FAIL"] else 0


def experiments(config_dir: str | None = None, word: str = "") -> list[tuple[str, str]]:
    """Experiments with `word` in their name or family, each with the pip lines that it lacks (empty: nothing)."""
    from gymlab.config import composed_experiments, discover
    from gymlab.engine.workflow import known_algorithms
    from gymlab.envs.extras import needs_of

    directory = Path(config_dir) if config_dir else None
    found = []
    for entry in discover(directory, known_algorithms()):
        for variant in entry.variants:
            name = f"{entry.name}:{variant.name}"
            needs = needs_of(entry.env_id, variant.obs_type)
            lacking = " && ".join(needs.pip_lines) if needs is not None and needs.missing else ""
            if any(word.lower() in text.lower() for text in (name, entry.env_id, entry.family)):
                found.append((name, lacking))
    composed = [f"experiment={name}" for name in composed_experiments(directory)]
    return found + [(name, "") for name in composed if word.lower() in name.lower()]


def import_what_all_need(plugins: Sequence[str] = ()) -> None:
    """Import what every training imports once, before the forks: a process of its own then costs no seconds."""
    from gymlab.api import load_plugins
    from gymlab.engine.workflow import find_workflow, workflow_names

    for module in HEAVY:
        importlib.import_module(module)
    load_plugins(plugins)
    for name in workflow_names():
        find_workflow(name)


def _work(timesteps: int, random: bool, runs_dir: Path, config_dir: str | None, experiment: str) -> None:
    from gymlab.cli.briefly import step_briefly, train_briefly

    if random:
        step_briefly(experiment, timesteps, config_dir)
    else:
        train_briefly(experiment, timesteps, runs_dir, config_dir)


def show(outcome: Outcome) -> None:
    """One line, and below it what went wrong."""
    from rich.text import Text

    from gymlab.cli.output import screen

    line: Any = Text.assemble((outcome.state, COLOURS[outcome.state]), f" {outcome.name}")
    if outcome.state != "SKIP":
        line.append(f"  {outcome.seconds:.1f} s", style="dim")
    if outcome.message:
        line.append(f"\n     {outcome.message}")
    if outcome.log:
        line.append(f"\n     {outcome.log}", style="dim")
    screen().print(line, soft_wrap=True)
