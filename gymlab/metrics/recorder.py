"""Collects the numbers of one epoch and reads them from the device once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING, Any, TypeAlias

from gymlab.errors import GymlabError
from gymlab.metrics.names import prefixed

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Value: TypeAlias = float | np.floating | np.integer | Tensor


class Recorder:
    """Takes floats, numpy scalars and 0-d tensors as they are; `flush` turns them into floats with one device sync.

    A tensor is read at `flush`, so it must not be changed in place after it was recorded.
    """

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._mean: defaultdict[str, list[Any]] = defaultdict(list)

    def record(self, name: str, value: Value) -> None:
        """Keep the last value of the epoch."""
        self._last[name] = value

    def record_mean(self, name: str, value: Value) -> None:
        """Keep the mean over the epoch."""
        self._mean[name].append(value)

    def record_means(self, metrics: Mapping[str, Value], purpose: str = "train") -> None:
        """Record a hook's metrics under their full names, as means over the calls of the epoch."""
        for name, value in metrics.items():
            self._mean[prefixed(purpose, name)].append(value)

    def get_state(self) -> dict[str, Any]:
        """What was recorded since the last flush, as numbers: a checkpoint in the middle of an epoch keeps it."""
        return {
            "last": dict(zip(self._last, _read(list(self._last.items())), strict=True)),
            "mean": {name: _read([(name, value) for value in values]) for name, values in self._mean.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        state = numbers_only(state)
        self._last = dict(state["last"])
        self._mean = defaultdict(list, {name: list(values) for name, values in state["mean"].items()})

    def flush(self) -> dict[str, float]:
        """The epoch's row; the recorder is empty afterwards. A name recorded both ways keeps its last value."""
        last, means = self._last, self._mean
        self._last, self._mean = {}, defaultdict(list)
        groups = [(name, values) for name, values in means.items() if name not in last]
        groups += [(name, [value]) for name, value in last.items()]
        read = iter(_read([(name, value) for name, values in groups for value in values]))
        row: dict[str, float] = {}
        for name, values in groups:
            numbers = [next(read) for _ in values]
            row[name] = numbers[0] if len(numbers) == 1 else fsum(numbers) / len(numbers)
        return row


def numbers_only(saved: Any) -> Any:
    """A part of a saved state if it is numbers, lists of numbers, or names with those: what is wrong shows now, not epochs later."""
    if isinstance(saved, Mapping):
        for value in saved.values():
            numbers_only(value)
    elif isinstance(saved, list):
        if not all(isinstance(value, int | float) for value in saved):
            raise ValueError(f"{str(saved)[:80]}, where numbers are")
    elif not isinstance(saved, int | float | None):
        raise ValueError(f"{str(saved)[:80]!r}, where a number is")
    return saved


def _is_tensor(value: Any) -> bool:
    return type(value) is not float and hasattr(value, "detach")


def _read(recorded: list[tuple[str, Any]]) -> list[float]:
    """The recorded values as numbers, in order."""
    tensors = iter(_read_tensors([(name, value) for name, value in recorded if hasattr(value, "detach")]))
    return [next(tensors) if hasattr(value, "detach") else _number(name, value) for name, value in recorded]


def _number(name: str, value: Any) -> float:
    if isinstance(value, (int, float)):
        return value
    if getattr(value, "ndim", 0) != 0:
        raise GymlabError(f"Metric {name!r} has shape {list(value.shape)}; record one number, e.g. its mean().")
    number: float = value.item()
    return number


def _read_tensors(tensors: list[tuple[str, Any]]) -> list[float]:
    """Values of 0-d tensors in order; all of a device are stacked first, so that each device is waited for once."""
    if not tensors:
        return []
    import torch

    by_device: dict[torch.device, list[int]] = defaultdict(list)
    for index, (name, tensor) in enumerate(tensors):
        if tensor.ndim != 0:
            raise GymlabError(f"Metric {name!r} has shape {list(tensor.shape)}; record one number, e.g. its mean().")
        by_device[tensor.device].append(index)
    values = [0.0] * len(tensors)
    with torch.no_grad():
        for indices in by_device.values():
            stacked = torch.stack([tensors[index][1] for index in indices])
            for index, value in zip(indices, stacked.tolist(), strict=True):
                values[index] = value
    return values
