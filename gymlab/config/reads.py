"""The open parts of a config: which names an algorithm reads there. What no one reads is refused by name.

A workflow declares its `Reads` beside its config class; the loader is handed them as it is handed the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymlab.config.phases import DURATIONS, PHASE_KEYS
from gymlab.config.schedules import parse_linear
from gymlab.config.schema import Config, Phase
from gymlab.config.validation import located
from gymlab.config.wording import hint, listing
from gymlab.config.yaml_reader import COMMAND_LINE, SWEEP, Located
from gymlab.errors import ConfigError

SINGLE_GROUPS = {"controller": "controllers", "buffer": "buffers"}
"""Config groups of one part, and the fields that hold such parts by name."""
SLOT_GROUPS = ("optimizers", "components", "controllers", "buffers")
"""Fields of a config that hold parts by name."""


@dataclass(frozen=True)
class Reads:
    """Names that an algorithm reads in the open parts of a config."""

    optimizers: Mapping[str, str] = field(default_factory=dict)
    """Optimizers that a config may replace, each with the field that holds its learning rate."""
    components: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    phase_options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of a phase that its hooks look at, beside those that every phase has, each with the values that it may have."""
    metrics: tuple[str, ...] | None = None
    """What its hooks log below `train/`, `*` standing for anything; None: it does not say."""


ReadsOf = Callable[[str], Reads]
"""What an algorithm reads, by its registered name."""


def refuse_choices(tree: Located, reads: Reads | None, place: str) -> None:
    """Raise for `controller=NAME` where no config group of that name was there to take it from."""
    for single, plural in SINGLE_GROUPS.items():
        if single not in tree:
            continue
        known = getattr(reads, plural, ())
        ways = " or ".join(f"{plural}.{name}={{_target_: ...}}" for name in known)
        raise ConfigError(
            f"{located(tree, single, place)}: `{single}={tree[single]}`: there is no config group {single}/ to take it from, "
            + (f"and {tree['algo_id']} reads nothing under {plural}." if not ways else f"write {ways}.")
        )


def take_rates(tree: Located, reads: Reads, place: str) -> None:
    """Move `lr` of an optimizer's node to the field that the algorithm reads: the rate has one place, where schedules and changes reach it."""
    for group in SLOT_GROUPS:
        if isinstance(nodes := tree.get(group), Mapping):
            # What is null is not set.
            tree[group] = {name: node for name, node in nodes.items() if node is not None}
    kept = tree.get("optimizers")
    if not isinstance(kept, dict):
        return
    for name, node in list(kept.items()):
        if name not in reads.optimizers or not isinstance(node, Mapping) or "lr" not in node:
            continue
        key, where, rate = reads.optimizers[name], tree.where.get("optimizers"), parse_linear(node["lr"])
        kept[name] = {option: value for option, value in node.items() if option != "lr"}
        written = parse_linear(tree.get(key))
        start = written.get("start") if isinstance(written, Mapping) else written
        if written is None or _rank(tree, "optimizers") > _rank(tree, key):
            # Where a schedule stands below, this is where it starts.
            scheduled = isinstance(written, Mapping) and isinstance(rate, int | float)
            tree.put(key, {**written, "start": rate} if scheduled else rate, where)
        elif _rank(tree, "optimizers") == _rank(tree, key) and rate not in (written, start):
            raise ConfigError(
                f"{located(tree, 'optimizers', place)}: `optimizers.{name}.lr` is {node['lr']!r} and `{key}` is {written!r}, "
                f"and both mean the same rate. Keep `{key}`: schedules and changes of a run are of that."
            )


def _rank(tree: Located, key: str) -> int:
    """How late a key is laid on: files, then a sweep, then the command line."""
    where = tree.where.get(key)
    return 0 if where is None else {SWEEP: 1, COMMAND_LINE: 2}.get(where.file, 0)


def check_reads(config: Config, tree: Located, reads: Reads, place: str) -> None:
    """Every part and every key of a phase must be one that somebody reads."""
    routed = {name for phase in config.training.phases for name in _buffers_of(phase)}
    for group in SLOT_GROUPS:
        known = [*getattr(reads, group), *(sorted(routed) if group == "buffers" else ())]
        for name in getattr(config, group):
            if name not in dict.fromkeys(known):
                raise ConfigError(
                    f"{located(tree, group, place)}: `{group}.{name}`: {config.algo_id} reads nothing of that name. "
                    f"{hint(name, known)}What it reads under {group}: {listing(dict.fromkeys(known))}."
                )
    for phase in config.training.phases:
        _check_options(phase, reads.phase_options, config.algo_id, located(tree, "training", place))
    if config.training.resume_path is not None:
        raise ConfigError(
            f"{located(tree, 'training', place)}: `training.resume_path`: a config begins a run and goes on with none. "
            f"To go on with one: `gymlab train --resume {config.training.resume_path}` (a run or one of its checkpoints); "
            "to begin with its weights: --init-from-run."
        )


def _buffers_of(phase: Phase) -> set[str]:
    return {name for name in (phase.buffer, *(hook.buffer for hook in phase.hooks)) if name is not None}


def _check_options(phase: Phase, options: Mapping[str, Collection[Any]], algo: str, place: str) -> None:
    for key, value in phase.options.items():
        if key not in options:
            known = [*PHASE_KEYS, *DURATIONS, *options]
            raise ConfigError(
                f"{place}, training.phases, phase {phase.name!r}: unknown key `{key}`. {hint(key, known)}"
                f"Of its own {algo} reads: {listing(options)}."
            )
        if value not in options[key]:
            raise ConfigError(
                f"{place}, training.phases, phase {phase.name!r}: `{key}` is {value!r}. {hint(str(value), map(str, options[key]))}"
                f"{algo} knows: {', '.join(str(choice) for choice in options[key])}."
            )
