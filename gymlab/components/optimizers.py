"""Optimizers by name, and the lean way to step one on a flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymlab.components.flat import FlatParameters
from gymlab.components.laprop import LaProp, check_betas
from gymlab.errors import ConfigError, NonFiniteError, did_you_mean

ADAM_EPSILON = 1e-5
"""PPO's epsilon, larger than torch's 1e-8: the first steps stay small where gradients are tiny."""
TORCH_ADAMW_DECAY = 0.01
"""What torch's AdamW takes when nobody names a weight decay; policy gradients were trained with it before there was a key."""

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "first", "second")
"""Tensors in the state of an optimizer that are as large as the parameter."""

NEEDED: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    LaProp: ("step", "first", "second"),
}
"""What is kept of a parameter once it was stepped."""

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def make_optimizer(
    name: str, parameters: list[nn.Parameter], lr: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """A fused optimizer of torch. The decay is always named: torch's AdamW would take 0.01, with 0 it is Adam.

    adamw multiplies every parameter by 1 - lr * weight_decay before its step (Loshchilov & Hutter 2019); adam and sgd add
    weight_decay times the parameter to the gradient.
    """
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"optimizer: unknown {name!r}. {did_you_mean(name, OPTIMIZERS)} Known: {', '.join(OPTIMIZERS)}."
        )
    options: dict[str, Any] = {} if name == "sgd" else {"eps": ADAM_EPSILON}
    return OPTIMIZERS[name](parameters, lr=lr, weight_decay=weight_decay, fused=True, **options)


def optimizer_text(optimizer: torch.optim.Optimizer) -> str:
    """An optimizer in a few words: `AdamW, eps 1e-05, weight decay 0 (so it is Adam)`."""
    group = optimizer.param_groups[0]
    words = [type(optimizer).__name__]
    if "eps" in group:
        words.append(f"eps {group['eps']:g}")
    decay = group.get("weight_decay")
    words.append("no weight decay" if decay is None else f"weight decay {decay:g}")
    is_adam = isinstance(optimizer, torch.optim.AdamW) and decay == 0
    return ", ".join(words) + " (so it is Adam)" * is_adam


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Take back a saved state, if it is one of this optimizer: a fused kernel reads and writes as far as the parameters go, whatever lies there.

    How it computes (fused or not) stays as it was made here.
    """
    before = [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for group, own in zip(optimizer.param_groups, before, strict=True):
        for name, value in own.items():
            if value is None or isinstance(value, bool):
                group[name] = value
            elif name != "params" and not _is_alike(group.get(name), value):
                raise ValueError(f"{name} is {str(group.get(name))[:80]}, not like {value}")
        check_betas(group.get("betas", ()))
        needed = next((names for kind, names in NEEDED.items() if isinstance(optimizer, kind)), ())
        for parameter in group["params"]:
            # Earlier releases saved an empty state of parameters that LaProp had not stepped yet.
            not_stepped = isinstance(optimizer, LaProp) and not optimizer.state.get(parameter)
            if parameter in optimizer.state and not not_stepped:
                if missing := [name for name in needed if name not in optimizer.state[parameter]]:
                    raise KeyError(", ".join(missing))
                _check_moments(optimizer.state[parameter], parameter, fused=bool(group.get("fused")))


def _is_alike(found: Any, own: Any) -> bool:
    """Finite numbers where there are numbers, and as many of them; anything else is of the same type."""
    if isinstance(own, tuple | list):
        return isinstance(found, tuple | list) and len(found) == len(own) and all(map(_is_alike, found, own))
    if isinstance(own, int | float):
        return isinstance(found, int | float) and math.isfinite(found)
    return type(found) is type(own)


def _check_moments(state: Mapping[str, Any], parameter: Tensor, *, fused: bool) -> None:
    """What is kept of a parameter: a counter of steps, and tensors of its shape."""
    for name, value in state.items():
        if name == "step":
            if not (isinstance(value, Tensor) and value.dim() == 0) and (fused or type(value) not in (int, float)):
                raise TypeError(f"step is {str(value)[:80]}, no number")
            if not 0 <= float(value) < math.inf:
                raise ValueError(f"step is {float(value)}, no count")
        elif isinstance(value, Tensor) and value.shape != parameter.shape and (fused or name in MOMENTS):
            raise ValueError(f"{name} has the shape {tuple(value.shape)}, not {tuple(parameter.shape)}")
        elif not isinstance(value, Tensor) and name in MOMENTS and value is not None:
            raise TypeError(f"{name} is no tensor")


class FlatOptimizer:
    """Clips the gradient of a flat vector and steps a torch optimizer on it.

    Adam and AdamW are stepped by the kernel behind `optimizer.step()` with the optimizer's own state: the same numbers
    and the same checkpoints at a fifth of the time, which for small networks is mostly bookkeeping.
    """

    def __init__(self, flat: FlatParameters, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._parameter = flat.parameter
        self._data = flat.parameter.detach()
        self._gradient = flat.gradient
        parts = flat.parts()
        self.part_names = list(parts)
        on_cpu = self._gradient.device.type == "cpu"
        self._flat_numpy = self._gradient.numpy() if on_cpu else None
        self._parts_numpy = (
            [self._flat_numpy[place] for place in parts.values()] if self._flat_numpy is not None else []
        )
        self._parts_torch = [self._gradient[place] for place in parts.values()]
        group = optimizer.param_groups[0]
        plain = (
            len(optimizer.param_groups) == 1
            and group.get("fused")
            and not group.get("amsgrad")
            and not group["maximize"]
        )
        kernels = {torch.optim.Adam: torch._fused_adam_, torch.optim.AdamW: torch._fused_adamw_}
        self._kernel = kernels.get(type(optimizer)) if plain and not isinstance(group["lr"], Tensor) else None

    def set_lr(self, lr: float) -> None:
        """Learning rate of the steps that follow."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def clip(self, max_norm: float | None) -> list[float] | Tensor:
        """Scale the gradient to a norm of at most `max_norm`; gives the norms of `part_names` before that."""
        if self._flat_numpy is None:
            norms = torch.stack([torch.linalg.vector_norm(part) for part in self._parts_torch])
            if max_norm is not None:
                self._gradient.mul_((max_norm / (torch.linalg.vector_norm(norms) + 1e-6)).clamp_(max=1.0))
            return norms
        squares = [float(part @ part) for part in self._parts_numpy]
        if max_norm is not None and (total := math.sqrt(sum(squares))) > max_norm:
            self._flat_numpy *= np.float32(max_norm / (total + 1e-6))
        return [math.sqrt(square) for square in squares]

    def step(self) -> None:
        """One step of the optimizer."""
        state = self.optimizer.state.get(self._parameter)
        if self._kernel is None or not state:
            self.optimizer.step()
            return
        group = self.optimizer.param_groups[0]
        beta1, beta2 = group["betas"]
        state["step"].add_(1)
        self._kernel(
            [self._data],
            [self._gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )


def descend(
    optimizer: torch.optim.Optimizer,
    losses: Mapping[str, Tensor],
    scales: Mapping[str, float],
    lr: float,
    *,
    clip_value: float | None = None,
) -> Tensor:
    """One step down the weighted sum of the losses; gives the norm of the gradient before its values were clipped."""
    assert losses.keys() == scales.keys(), (losses.keys(), scales.keys())
    total = torch.stack([losses[name] * scale for name, scale in scales.items()]).sum()
    if not torch.isfinite(total):
        broken = next((name for name, loss in losses.items() if not torch.isfinite(loss)), "total")
        raise NonFiniteError(
            f"loss/{broken} is not finite. A learning rate lower than {lr:g} usually helps.", tensor=f"loss/{broken}"
        )
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    return take_step(optimizer, [lr], max_value=clip_value)


def take_step(
    optimizer: torch.optim.Optimizer,
    rates: Sequence[float],
    *,
    max_norm: float | None = None,
    max_value: float | None = None,
) -> Tensor:
    """One step along the gradients that there are, each group of parameters at its own rate; gives their norm before they were clipped."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters])
    if max_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    if max_value is not None:
        nn.utils.clip_grad_value_(parameters, max_value)
    optimizer.step()
    return norm
