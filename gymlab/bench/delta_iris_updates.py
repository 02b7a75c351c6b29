"""Updates of gymlab's Δ-IRIS, timed as the authors' are. Runs in worker processes."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gymlab
from gymlab.bench.watch import watch
from gymlab.buffers.batches import Records, SegmentBatch
from gymlab.buffers.episode_sampler import EpisodeSampler
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView

RECORDS = 2000
"""Steps that batches are drawn from."""
LOSSES = {"tokenizer": "_tokenizer_losses", "world_model": "_model_losses", "controller": "_controller_losses"}
"""The method in which each component goes forward."""


def time_updates(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of an update of each component and where they went, learned parameters, and peak memory of the process."""
    parts = job["parts"]
    options = {
        "tokenizer_batch": job["sequences"] // parts,
        "model_batch": job["sequences"] // parts,
        "actor_batch": job["starts"] // parts,
        "accumulate": parts,
        "n_envs": 1,
        "replay_size": 2 * RECORDS,
        "replay_on_disk": False,
        "torch_threads": job["threads"],
        "precision": job["precision"],
        "seed": job["seed"],
        **job["options"],
    }
    session = prepare(gymlab.resolve(job["experiment"], **options).config)
    workflow: Any = session.workflow
    workflow.episodes.add([random_records(workflow, np.random.default_rng(job["seed"]))])
    watched = {part: watch(methods) for part, methods in methods_by_part(workflow).items()}
    found: dict[str, Any] = {}
    for name in job["components"]:
        batch, view = batch_without_padding(workflow.samplers[name]), PhaseView("train", "online", 0, 0, 0, 0, None, {})
        update = partial(getattr(workflow, f"update_{name}"), batch, view)
        seconds_of(update, job["warmup"])
        for seconds in watched.values():
            seconds.clear()
        spent = seconds_of(update, job["repeats"])
        learned = [p for group in workflow.optimizers[name].param_groups for p in group["params"]]
        found |= {name: statistics.median(spent), f"{name}/parameters": sum(p.numel() for p in learned)}
        inside = {part: sum(seconds.values()) for part, seconds in watched.items()}
        found |= {f"{name}/{part}": share for part, share in shares(inside, sum(spent)).items()}
        if name != "tokenizer":
            found[f"{name}/anew"] = statistics.median(seconds_of(partial(anew, workflow, update), job["repeats"]))
    session.close()
    return found | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def random_records(workflow: Any, generator: np.random.Generator) -> Records:
    """One episode of random numbers that goes on and on."""
    fields, count = workflow.episodes.fields, workflow.actions.size
    picture, never = f"observation/{workflow.key}", np.zeros(RECORDS, np.bool_)
    values = {
        picture: generator.integers(256, size=(RECORDS, *fields[picture].shape), dtype=np.uint8),
        "action": np.eye(count, dtype=np.float32)[generator.integers(count, size=RECORDS)],
        "reward": generator.normal(size=RECORDS).astype(np.float32),
        "is_first": np.arange(RECORDS) == 0,
        "is_last": never,
        "is_terminal": never,
    }
    return Records(np.zeros(RECORDS, np.int64), values)


def batch_without_padding(sampler: EpisodeSampler) -> SegmentBatch:
    """What replay gives, all of it real steps: the authors' batch has no padding either."""
    while not (batch := sampler.sample()).mask.all():
        pass
    return batch


def anew(workflow: Any, update: Callable[[], Any]) -> None:
    """An update for which the words of its steps have to be found, as for the first that reads them."""
    workflow.known_words.forget()
    update()


def seconds_of(call: Callable[[], Any], count: int) -> list[float]:
    """Seconds of each of so many calls."""
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return spent


def methods_by_part(workflow: Any) -> dict[str, list[tuple[Any, str]]]:
    """Methods that an update's time is told apart by; of those of networks, none calls another."""
    tokenizer, model = workflow.tokenizer, workflow.model
    return {
        "tokenizer, encode": [(tokenizer, "encode")],
        "tokenizer, decode": [(tokenizer, "decode")],
        "frame tokens": [(model, "frame_tokens")],
        "transformer": [(model.transformer, "forward"), (model.transformer, "go_on")],
        "heads": [(head, "forward") for head in (model.word_head, model.reward_head, model.end_head)],
        "actor and slow copy": [
            (actor, name) for actor in (workflow.actor, workflow.slow_actor) for name in ("see", "remember")
        ],
        "optimiser": [(optimizer, "step") for optimizer in workflow.optimizers.values()],
        "_train": [(workflow, "_train")],
        "_segments": [(workflow, "_segments")],
        "_losses": [(workflow, name) for name in LOSSES.values()],
    }


def shares(inside: dict[str, float], whole: float) -> dict[str, float]:
    """Of an update's time, by part."""
    parts = {part: seconds for part, seconds in inside.items() if not part.startswith("_")}
    parts["backward, clipping"] = inside["_train"] - inside["_segments"] - inside["_losses"] - inside["optimiser"]
    parts["rest"] = whole - sum(parts.values())
    return {part: seconds / whole for part, seconds in parts.items()}
