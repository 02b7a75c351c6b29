"""Arrays of JAX as a torch module, so that checkpoints hold them as safetensors like the weights of any other agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn


class ArrayTree(nn.Module):
    """A tree of arrays (JAX's pytree). Each leaf is a buffer under its path: `policy/params/hidden_0/kernel`.

    Of leaves that are shapes only, the buffers are zeros to be loaded into.
    """

    def __init__(self, tree: Any) -> None:
        import jax

        super().__init__()
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
        self._tree: Any = None
        for name, (_, leaf) in zip(self._names, leaves, strict=True):
            self.register_buffer(name, _tensor(leaf))
        self.register_load_state_dict_post_hook(_forget_tree)

    @property
    def tree(self) -> Any:
        """The arrays in their places, for JAX."""
        if self._tree is None:
            import jax
            import jax.numpy as jnp

            arrays = [jnp.asarray(self.get_buffer(name).numpy()) for name in self._names]
            self._tree = jax.tree.unflatten(self._structure, arrays)
        return self._tree

    def take(self, tree: Any) -> None:
        """Hold a copy of another tree of the same shape."""
        import jax

        for name, leaf in zip(self._names, jax.tree.leaves(tree), strict=True):
            self.register_buffer(name, _tensor(leaf))
        self._tree = None

    def count(self, part: str) -> int:
        """Numbers in the leaves below `part`."""
        return sum(self.get_buffer(name).numel() for name in self._names if name.startswith(f"{part}/"))


def _tensor(leaf: Any) -> torch.Tensor:
    import jax

    array = np.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else np.array(leaf)
    # Brax leaves some numbers as Python's, which JAX takes for 32 bits.
    return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)


def _forget_tree(module: nn.Module, _: Any) -> None:
    assert isinstance(module, ArrayTree)
    module._tree = None
