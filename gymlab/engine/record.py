"""What run.json may say: fields by name with their kind. One of another kind is unknown, as if it had not been written.

Whoever reads a record may therefore rely on the kinds below; a field may be missing or None, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 1e18
"""Numbers beyond this are damage; below it all arithmetic and formats work."""
LATEST = 1e11
"""The year 5138: later times have no date."""
LARGEST_PID = 2**31 - 1


def is_text(value: Any) -> bool:
    """Whether a value is text."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of a sane size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of a sane size."""
    return isinstance(value, int) and is_number(value)


def seed_of(record: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """The seed of a run: as it was recorded, else as its config says."""
    recorded: Any = record.get("seed")
    declared: Any = config.get("seed")
    return next((seed for seed in (recorded, declared) if is_whole(seed)), None)


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 <= value < LATEST


def _is_pid(value: Any) -> bool:
    return is_whole(value) and 0 < value <= LARGEST_PID


def _all(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A list whose items all pass."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def _each(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A mapping whose values all pass."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_interval(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_shortened(value: Any) -> bool:
    """Steps at which episodes were cut, and the task's own limit or None; None for whole episodes."""
    if not isinstance(value, list):
        return value is None
    return len(value) == 2 and is_whole(value[0]) and (value[1] is None or is_whole(value[1]))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(is_text(name) for name in value)


_RESULT: dict[str, Callable[[Any], bool]] = {
    "mean": is_number,
    "ci95": _is_interval,
    "n": is_whole,
    "asked": is_whole,
    "complete": _is_truth,
    "cut": is_text,
    "steps": is_whole,
    "shortened": _is_shortened,
    "changed": _are_names,
    "min": is_number,
    "max": is_number,
    "threshold": is_number,
    "solved": _is_truth,
}


def _result(value: Any) -> dict[str, Any] | None:
    """A final evaluation: one without a mean in which episodes ended is none, and of the rest what is of another kind is left out."""
    if not isinstance(value, dict):
        return None
    if not is_number(value.get("mean")) and value.get("n") != 0:
        return None
    return {name: item for name, item in value.items() if item is None or name not in _RESULT or _RESULT[name](item)}


def is_place(value: Any) -> bool:
    """A moment of a run, as `gymlab.engine.legs.Place` has it."""
    return (
        isinstance(value, dict)
        and all(is_whole(value.get(name)) and value[name] >= 0 for name in ("env_steps", "updates", "epoch"))
        and is_whole(value.get("looks", 0))
        and is_text(value.get("hook", ""))
        and isinstance(value.get("epoch_ending", False), bool)
    )


def _is_session(value: Any) -> bool:
    """A time at which the run was resumed, where from, which settings were others until then, and what it was made with."""
    return (
        isinstance(value, dict)
        and is_text(value.get("from"))
        and _is_time(value.get("time"))
        and ("at" not in value or is_place(value["at"]))
        and isinstance(value.get("changed", {}), dict)
        and _is_machine(value.get("machine", {}))
        and _each(is_text)(value.get("versions", {}))
    )


_is_machine = _each(lambda value: is_text(value) or is_whole(value))


FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "status",
            "reason",
            "experiment",
            "command",
            "repeat",
            "repeats",
            "host",
            "boot",
            "backend",
            "stepped_by",
            "first_model",
        ),
        is_text,
    ),
    **dict.fromkeys(("started", "ended", "process_started", "sitting_began"), _is_time),
    **dict.fromkeys(("seconds", "wall_seconds", "wall_before", "best_return", "threshold"), is_number),
    "seed": is_whole,
    "pid": _is_pid,
    "counters": _each(is_number),
    "versions": _each(is_text),
    "machine": _is_machine,
    "plugins": _all(is_text),
    "named_files": _all(is_text),
    "by_turns": lambda value: isinstance(value, bool),
    "workers": is_whole,
    "restarts": is_whole,
    "pictures": _each(is_text),
    "notices": _all(is_text),
    "resumed": _all(_is_session),
}


def known_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the fields that are of their kind; names that are not known here stay as they are."""
    kept = {name: item for name, item in data.items() if name not in FIELDS or item is None or FIELDS[name](item)}
    if "result" in kept:
        kept["result"] = _result(kept["result"])
    return kept
