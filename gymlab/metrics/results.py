"""What an evaluation found, and what may be said of it: the one owner of verdicts and of the words beside a return.

A result is a mapping of plain values, as run.json keeps it. `judge` adds what follows from the rest: `solved`, `verdict` and
`note`. A mean over the episodes that happened to end in time favours short ones, and one over shortened episodes or of a
changed task says nothing about the task's threshold: none of them is solved or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymlab.metrics.statistics import Interval, format_number

NOTHING_ENDED = "no episode ended"


def judge(result: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A result with `asked`, `complete`, `solved`, `verdict` and `note`; `config` tells what records of earlier releases lack."""
    mean, n = result.get("mean"), result.get("n")
    complete = mean is not None and result.get("complete", True)
    asked = result.get("asked", n if complete else _whole((config or {}).get("eval_episodes")))
    found = {
        "ci95": None,
        **result,
        "mean": mean,
        "asked": asked,
        "complete": complete,
        "shortened": _shortened(result, config or {}),
    }
    if not complete or n == 1:
        found["ci95"] = None
    note = _note(found)
    reached = None if mean is None or found.get("threshold") is None else mean >= found["threshold"]
    found["solved"] = None if note else reached
    found["note"] = note
    found["verdict"] = _verdict(found)
    return found


def return_text(result: Mapping[str, Any]) -> str:
    """`487.2 [480.1, 493.9]`, `34.0 (n=1, no interval)`, the mean alone where its interval would not be one, or why there is none."""
    if result.get("mean") is None:
        return str(result.get("note") or "-")
    return str(Interval.of_result(result)) if result.get("complete", True) else format_number(result["mean"])


def beside_text(result: Mapping[str, Any]) -> str:
    """What stands beside the return: what its brackets are, and what must be said of it."""
    if result["mean"] is None:
        return ""
    found = Interval.of_result(result)
    parts = [f"{found.words}, n={found.n}"] if found.n > 1 and result.get("complete", True) else []
    if result.get("note"):
        parts.append(result["note"])
    return "; ".join(parts)


def _verdict(found: Mapping[str, Any]) -> str:
    """solved, not solved, or why that cannot be said."""
    if found["mean"] is None:
        return NOTHING_ENDED
    if not found["complete"]:
        return f"not judged: {_finished(found)}"
    if found.get("threshold") is None:
        return "no threshold known"
    if why := _no_comparison(found):
        return f"not judged: {why}"
    return f"{'solved' if found['solved'] else 'not solved'} (threshold {found['threshold']:g})"


def _note(found: Mapping[str, Any]) -> str | None:
    """What must be said wherever the mean is shown; None for one that speaks for itself."""
    why = found.get("cut")
    if found["mean"] is None:
        steps = found.get("steps")
        after = "" if steps is None else f" after {steps:,} step{'' if steps == 1 else 's'}"
        return f"{NOTHING_ENDED}{after}" + (f": {why}" if why else "")
    if not found["complete"]:
        return f"{_finished(found)}; the mean favours short episodes" + (f" ({why})" if why else "")
    return _no_comparison(found)


def _no_comparison(found: Mapping[str, Any]) -> str | None:
    """Why the returns are not held against the task's threshold."""
    if found["shortened"]:
        return _cut(*found["shortened"])
    changed = found.get("changed")
    if not changed or found.get("threshold") is None:
        return None
    return f"the threshold holds for {'another value' if len(changed) == 1 else 'other values'} of {', '.join(changed)}"


def _finished(found: Mapping[str, Any]) -> str:
    return (
        f"{found['n']} of {found['asked']} finished" if found["asked"] else f"{found['n']} finished, and others did not"
    )


def _cut(steps: int, task_steps: int | None) -> str:
    return f"episodes were cut at {steps:,} " + (f"of the task's {task_steps:,} steps" if task_steps else "steps")


def _shortened(result: Mapping[str, Any], config: Mapping[str, Any]) -> list[int | None] | None:
    """Steps at which episodes were cut, and the task's own limit (None: unknown); None for whole episodes."""
    if "shortened" in result:
        return result["shortened"]
    cap, limit = _whole(config.get("eval_max_episode_steps")), _whole(config.get("max_episode_steps"))
    return None if cap is None or (limit is not None and limit <= cap) else [cap, limit]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
