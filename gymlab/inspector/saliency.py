"""Perturbation saliency (Greydanus et al. 2018, "Visualizing and Understanding Atari Agents"): blur a spot, see what changes.

    I'(i, j) = I (1 - M(i, j)) + blur(I) M(i, j)          M: a Gaussian spot at (i, j)
    S(i, j)  = 1/2 |f(I) - f(I'(i, j))|^2                 f: the policy, or the value

It asks nothing of the agent but to act, so that it holds for any algorithm, and a blurred spot is still a picture the agent could have seen. The
paper takes the policy's logits; here they are action probabilities (means, for continuous actions), which is what `act` tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gymlab.engine.agent import Agent
from gymlab.inspector.routes import HttpError

METHOD = "Perturbation saliency (Greydanus et al. 2018)"
SPOTS = 17
"""Spots along the longer side: the paper's stride of 5 on 80 pixels, and a little more."""
BATCH = 64
BLUR = 3.0 / 80
"""Deviation of the blur as a share of the longer side; the paper's 3 of 80 pixels."""
SPOT = 5.0 / 80
"""Deviation of the spot, likewise."""


def saliency(agent: Agent, observation: np.ndarray) -> dict[str, Any]:
    """Maps [rows, columns] of how much a spot matters to the policy and to the value, each with its largest entry."""
    workflow = agent.workflow
    if workflow.initial_state(1) is not None:
        raise HttpError(
            400, "Saliency is for agents without a memory: this one's answer also hangs on what it saw before."
        )
    _, height, width = observation.shape
    stride = max(height, width) / SPOTS
    rows = np.arange(stride / 2, height, stride)
    columns = np.arange(stride / 2, width, stride)
    image = observation.astype(np.float32)
    blurred = blur(image, BLUR * max(height, width))
    centres = [(row, column) for row in rows for column in columns]
    before = _answers(agent, observation[None])
    policy, value = [], []
    for begin in range(0, len(centres), BATCH):
        spots = np.stack([_spot(centre, height, width) for centre in centres[begin : begin + BATCH]])[:, None]
        mixed = image * (1 - spots) + blurred * spots  # [B, C, H, W]
        after = _answers(agent, np.rint(mixed).astype(observation.dtype))
        policy.append(0.5 * np.square(after[0] - before[0]).sum(axis=1))
        value.append(0.5 * np.square(after[1] - before[1]))
    shape = (len(rows), len(columns))
    maps = {"policy": np.concatenate(policy).reshape(shape), "value": np.concatenate(value).reshape(shape)}
    return {
        "method": METHOD,
        "rows": shape[0],
        "columns": shape[1],
        **maps,
        "most": {name: float(grid.max()) for name, grid in maps.items()},
    }


def _answers(agent: Agent, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B, P] probabilities or means, and [B] values (zeros where the agent has none)."""
    _, _, extras = agent.workflow.act(observations, agent.workflow.initial_state(len(observations)), deterministic=True)
    policy = extras.get("probabilities", extras.get("mean"))
    if policy is None:
        raise HttpError(400, f"{agent.config.algo_id} tells neither probabilities nor means of its actions.")
    values = extras.get("value")
    return policy.astype(np.float64), np.zeros(len(observations)) if values is None else values.astype(np.float64)


def blur(image: np.ndarray, deviation: float) -> np.ndarray:
    """[C, H, W] with each plane blurred by a Gaussian; at the edges the weights that are left count for all."""
    _, height, width = image.shape
    return np.einsum("ij,cjk,lk->cil", _weights(height, deviation), image, _weights(width, deviation), optimize=True)


def _weights(size: int, deviation: float) -> np.ndarray:
    distance = np.arange(size)[:, None] - np.arange(size)[None]
    weights = np.exp(-0.5 * np.square(distance / deviation))
    normalised: np.ndarray = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return normalised


def _spot(centre: tuple[float, float], height: int, width: int) -> np.ndarray:
    deviation = SPOT * max(height, width)
    down = np.exp(-0.5 * np.square((np.arange(height) + 0.5 - centre[0]) / deviation))
    across = np.exp(-0.5 * np.square((np.arange(width) + 0.5 - centre[1]) / deviation))
    spot: np.ndarray = np.outer(down, across).astype(np.float32)
    return spot
