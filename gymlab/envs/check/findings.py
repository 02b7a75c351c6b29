"""What a check found, and the list of all checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed", "skipped"]

CHECKS = {
    "make": "the environment can be made",
    "api": "reset and step give what Gymnasium's interface says",
    "observation": "observations lie in their space: type, dtype, shape, bounds",
    "action": "the action space is one that policies have",
    "finite": "no NaN or Inf in observations and rewards",
    "reward": "random actions meet a reward",
    "episode": "episodes end, and a time limit sees to it",
    "shown": "so they do after wrappers, image settings and flattening",
    "seeding": "the same seed gives the same episode, another seed another one",
    "replay": "a fresh process repeats an episode: what an exact resume needs",
    "sync": "several in this process give the stream of one alone",
    "async": "several in processes of their own give the stream of one alone",
    "frame": "frames can be rendered, for videos",
    "speed": "steps a second of one, and how several would be stepped",
}
"""Every check by its id, in the order in which they are made."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    state: State
    """ok, warning (training works but may disappoint), failed (mend it before training) or skipped."""
    detail: str
    """What was found, with the figure."""
    advice: str = ""
    """How to mend it."""


def ok(check: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, advice: str = "") -> Finding:
    """It trains, but may disappoint."""
    return Finding(check, "warning", detail, advice)


def failed(check: str, detail: str, advice: str = "") -> Finding:
    """To be mended before training."""
    return Finding(check, "failed", detail, advice)


def skipped(check: str, detail: str) -> Finding:
    """Not looked at, and why."""
    return Finding(check, "skipped", detail)
