"""Adam as Keras computes it: the optimiser of Dreamer v1 and v2."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class KerasAdam(torch.optim.Adam):
    """Torch's Adam but for two things that TensorFlow has otherwise, and DreamerV2's weight decay.

        w <- (1 - decay) w      m, v as in Adam      w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    `eps` is added to the square root as it is; torch corrects the root's bias first, so that there `eps` weighs up to
    sqrt(1 - b2) less in the first steps. The decay is a share of the weights each step, whatever the learning rate;
    AdamW's would be `lr` times that. Weights, biases and norms decay alike.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3, eps: float = 1e-7, decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, eps=eps, fused=True)
        self.own_eps, self.decay = eps, decay
        for group in self.param_groups:
            group["steps"] = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step for all parameters that have a gradient."""
        assert closure is None, "KerasAdam takes no closure."
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            if self.decay:
                torch._foreach_mul_(parameters, 1 - self.decay)
            group["steps"] += 1
            group["eps"] = self.own_eps / math.sqrt(1 - group["betas"][1] ** group["steps"])
        super().step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state. Earlier releases used torch's AdamW: its moments and counters are taken over, its decay is not."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["weight_decay"] = 0.0
            if "steps" not in group:
                counted = [int(self.state[p]["step"]) for p in group["params"] if p in self.state]
                group["steps"] = max(counted, default=0)
