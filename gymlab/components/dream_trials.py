"""Controllers judged inside M: thousands of dreams as one batch, which gets smaller as dreams end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gymlab.components.linear_controllers import ActionMap, LinearControllers
from gymlab.components.mdn_rnn import MDNRNN, Hidden

CROWDED = 7 / 8
"""Rows of the batch are let go when fewer than this share of them still dreams; each time sooner costs copies."""


@torch.no_grad()
def dream_returns(
    model: MDNRNN,
    controllers: LinearControllers,
    actions: ActionMap,
    weights: Tensor,
    z: Tensor,
    *,
    features: Callable[[Tensor, Hidden], Tensor],
    temperature: float,
    steps: int,
) -> Tensor:
    """Returns [N] of N dreams that begin at z [N, Z], each acted in by weights of its own [N, D], cut after `steps`.

    features: what a controller is given for z and the memory.
    """
    count = len(z)
    returns, rows = z.new_zeros(count), torch.arange(count, device=z.device)
    hidden, begins = model.initial(count), torch.ones(count, dtype=torch.bool, device=z.device)
    alive = torch.ones_like(begins)
    for _ in range(steps):
        outputs = controllers(weights, features(z, hidden).unsqueeze(1)).squeeze(1)
        vectors = actions.vectors(actions.squash(outputs))
        z, reward, ends, hidden = model.dream(z, vectors, begins, hidden, temperature)
        returns[rows] += reward * alive
        alive &= ~ends
        begins = torch.zeros_like(alive)
        left = int(alive.sum())
        if left == 0:
            break
        if left < CROWDED * len(rows):
            rows, z, weights, begins = rows[alive], z[alive], weights[alive], begins[alive]
            hidden = Hidden(hidden.h[alive], hidden.c[alive])
            alive = torch.ones_like(begins)
    return returns
