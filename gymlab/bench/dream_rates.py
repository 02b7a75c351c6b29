"""Dreamt steps a second of World Models' controllers, one dream after the other and a whole population at once. Runs in worker processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces

from gymlab.components.dream_trials import dream_returns
from gymlab.components.linear_controllers import LinearControllers, action_map
from gymlab.components.mdn_rnn import MDNRNN, Hidden

TEMPERATURE = 1.15
STEPS = 8
"""Steps of a timed dream: enough that its beginning does not count."""
TURNS = 3


def time_dreams(job: dict[str, Any]) -> dict[str, Any]:
    """Medians of both rates, and of their ratio, over turns that follow one another."""
    torch.manual_seed(job["seed"])
    rows = job["population"] * job["rollouts"]
    alone, together = dreams(job, 1), dreams(job, rows)
    rates = [(rate(alone, 1, job["seconds"]), rate(together, rows, job["seconds"])) for _ in range(TURNS)]
    return {
        "alone": statistics.median(one for one, _ in rates),
        "together": statistics.median(many for _, many in rates),
        "ratio": statistics.median(many / one for one, many in rates),
    }


def dreams(job: dict[str, Any], rows: int) -> Callable[[], Any]:
    """A piece of work: STEPS steps of so many dreams, each with a controller of its own. Dreams do not end, so that all take as long."""
    model = MDNRNN(job["latent"], job["actions"], job["hidden"])
    actions = action_map(spaces.Box(-1, 1, (job["actions"],)), "auto", (0, 1, 2), 0.0, 0.0)
    controllers = LinearControllers(job["latent"] + job["hidden"], actions.outputs)
    weights, z = 0.1 * torch.randn(rows, controllers.size), torch.randn(rows, job["latent"])
    begun = partial(dream_returns, model, controllers, actions, weights, z)
    return partial(begun, features=features, temperature=TEMPERATURE, steps=STEPS)


def features(z: torch.Tensor, hidden: Hidden) -> torch.Tensor:
    """The code and the LSTM's output."""
    return torch.cat([z, hidden.h], -1)


def rate(work: Callable[[], Any], rows: int, seconds: float) -> float:
    """Dreamt steps a second, after one piece to warm up."""
    work()
    began, pieces = time.perf_counter(), 0
    while not pieces or time.perf_counter() - began < seconds:
        work()
        pieces += 1
    return pieces * rows * STEPS / (time.perf_counter() - began)
