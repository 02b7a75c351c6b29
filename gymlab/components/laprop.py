"""LaProp with adaptive gradient clipping: the one optimiser of Dreamer v3."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

LEAST_NORM = 1e-3
"""Weights count as at least this large when their gradients are clipped: zeros could never move otherwise."""


def clip_adaptively(parameters: list[Tensor], gradients: list[Tensor], clip: float) -> None:
    """Scale each gradient down to `clip` times the norm of its tensor, in place (AGC, Brock et al. 2021, per tensor)."""
    norms = torch.stack(torch._foreach_norm(gradients))
    limits = clip * torch.stack(torch._foreach_norm(parameters)).clamp_(min=LEAST_NORM)
    torch._foreach_mul_(gradients, list((norms / limits).clamp_(min=1.0).reciprocal_().unbind(0)))


def check_betas(betas: Iterable[float]) -> None:
    """Shares of what moving averages keep: at 1 the correction of their beginning divides by zero, and above it they grow without end."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas are {tuple(betas)}, not from 0 to below 1")


class LaProp(torch.optim.Optimizer):
    """Ziyin et al. 2020: the gradient is divided by its own size first and averaged over time after that.

        v <- b2 v + (1 - b2) g^2      m <- b1 m + (1 - b1) g / (sqrt(v / (1 - b2^t)) + eps)      w <- w - lr m / (1 - b1^t)

    t counts the steps of each parameter by itself. One that gets its first gradient late, as the actor after updates of
    the model alone, has moments that are as young as its counter; with a counter of all together its first steps were
    several times the learning rate. Adam averages before it divides. `agc` clips each tensor's gradient by its weights'
    norm first; None: not at all. The learning rate rises from 0 over a parameter's first `warmup` steps.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 4e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-20,
        agc: float | None = 0.3,
        warmup: int = 1000,
    ) -> None:
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "agc": agc, "warmup": warmup})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step for all parameters that have a gradient."""
        assert closure is None, "LaProp takes no closure."
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            if group["agc"] is not None:
                gradients: list[Any] = [p.grad for p in parameters]
                clip_adaptively(parameters, gradients, group["agc"])
            # Nearly always all have taken equally many steps: one set of operations over lists of tensors moves them.
            alike: dict[int, list[Tensor]] = defaultdict(list)
            for p in parameters:
                state = self.state[p]
                if not state:
                    state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
                state["step"] += 1
                alike[state["step"]].append(p)
            for steps, those in alike.items():
                self._move(those, group, steps)

    def _move(self, parameters: list[Tensor], group: dict[str, Any], steps: int) -> None:
        """The step number `steps` of parameters."""
        gradients: list[Any] = [p.grad for p in parameters]
        first = [self.state[p]["first"] for p in parameters]
        second = [self.state[p]["second"] for p in parameters]
        beta1, beta2 = group["betas"]
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        size = torch._foreach_div(second, 1 - beta2**steps)
        torch._foreach_sqrt_(size)
        torch._foreach_add_(size, group["eps"])
        divided: Any = torch._foreach_div(gradients, list(size))
        torch._foreach_lerp_(first, divided, 1 - beta1)
        rate = group["lr"] * min(1.0, (steps - 1) / group["warmup"]) if group["warmup"] else group["lr"]
        torch._foreach_add_(parameters, first, alpha=-rate / (1 - beta1**steps))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state. Earlier releases had one counter a group: parameters that have moments go on with it."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            counted = group.pop("steps", None)
            for p in group["params"]:
                if self.state.get(p) and counted is not None:
                    self.state[p].setdefault("step", counted)
