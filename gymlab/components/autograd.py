"""Gradients by autograd, eager or compiled: for any network, device and precision, and for distributed runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymlab.components.flat import FlatParameters
from gymlab.components.minibatch import Coefficients, Minibatch

Loss = Callable[[Tensor, Tensor, Minibatch, Coefficients], tuple[Tensor, Tensor]]
"""(distribution parameters [B, P], values [B], batch, coefficients) -> (loss, statistics to report)."""


class AutogradGradient:
    """Fills the flat gradient by backpropagation through `network` and `loss`."""

    def __init__(
        self,
        network: Callable[[Tensor], Any],
        flat: FlatParameters,
        loss: Loss,
        *,
        fabric: Any = None,
        compiled: bool = False,
    ) -> None:
        self._flat = flat
        self._backward = fabric.backward if fabric is not None else Tensor.backward
        self._compiled = compiled
        self.compile_seconds: float | None = None
        """How long the first call took, when the loss is compiled."""

        def forward(batch: Minibatch, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
            parameters, values = network(batch.observations)
            return loss(parameters, values, batch, coefficients)

        self._forward = torch.compile(forward) if compiled else forward

    def __call__(self, batch: Minibatch, coefficients: Coefficients) -> Tensor:
        """Gradient of the loss on `batch`; returns the statistics as a tensor, so that nothing waits for the device."""
        start = time.perf_counter()
        if self._compiled:
            # As tensors: compiled code takes a Python number for a constant and would be made anew when a schedule moves it.
            numbers = asdict(coefficients)
            coefficients = Coefficients(
                **{name: value if value is None else torch.tensor(value) for name, value in numbers.items()}
            )
        self._flat.gradient.zero_()
        loss, statistics = self._forward(batch.to_torch(self._flat.parameter.device), coefficients)
        self._backward(loss)
        if self._compiled and self.compile_seconds is None:
            self.compile_seconds = time.perf_counter() - start
        return statistics


class TorchPolicy:
    """A policy network for acting: numpy in, numpy out, nothing recorded for gradients."""

    collects_values = True
    """Values come with the distribution parameters at no extra cost, so they are kept as they come."""

    def __init__(self, network: Callable[[Tensor], Any], device: torch.device, fabric: Any = None) -> None:
        self._network = network
        self._device = device
        self._autocast = fabric.autocast if fabric is not None else nullcontext

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations [B, ...] -> distribution parameters [B, P] and values [B]."""
        with torch.inference_mode(), self._autocast():
            parameters, values = self._network(torch.from_numpy(x).to(self._device))
        return parameters.float().cpu().numpy(), values.float().cpu().numpy()

    def actor(self, x: np.ndarray) -> np.ndarray:
        """Observations [B, ...] -> distribution parameters [B, P]."""
        return self(x)[0]

    def critic(self, x: np.ndarray) -> np.ndarray:
        """Observations [B, ...] -> values [B]."""
        return self(x)[1]
