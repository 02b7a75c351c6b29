"""Nested state <-> JSON tree + named tensors: everything a checkpoint holds, without pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A JSON-able tree for `value`; arrays and tensors go to `tensors` under their path and leave a reference behind."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.generic):
        return encode(value.item(), path, tensors)
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {"$tensor": path}
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.array(value, order="C"))
        return {"$array": path}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item, f"{path}/{key}", tensors) for key, item in value.items()}
        pairs = [[encode(key, path, tensors), encode(item, f"{path}/{key}", tensors)] for key, item in value.items()]
        return {"$dict": pairs}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]}
    if isinstance(value, list):
        return [encode(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]
    raise TypeError(
        f"State at {path!r} is a {type(value).__name__}: only numbers, strings, lists, dicts, arrays and tensors can be saved."
    )


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `encode` was given."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        # In a file tensors lie at any address, and products of matrices are rounded by address: to go on exactly they lie as torch lays them.
        return tensors[tree["$tensor"]].clone()
    if "$array" in tree:
        return tensors[tree["$array"]].numpy()
    if "$float" in tree:
        return float(tree["$float"])
    if "$tuple" in tree:
        return tuple(decode(item, tensors) for item in tree["$tuple"])
    if "$dict" in tree:
        return {decode(key, tensors): decode(item, tensors) for key, item in tree["$dict"]}
    return {key: decode(item, tensors) for key, item in tree.items()}
