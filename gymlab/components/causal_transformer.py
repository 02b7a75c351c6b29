"""A causal transformer (GPT, norms first) that also goes on token by token from the keys and values of what it has read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of the tokens that were read; its storage is shared with the caches that go on from it."""

    keys: Tensor
    """[layers, B, heads, most, D]."""
    values: Tensor
    length: int
    """Tokens that were read."""

    @property
    def room(self) -> int:
        """Tokens that can still be read."""
        return self.keys.shape[3] - self.length

    def copy(self) -> Cache:
        """The same with storage of its own."""
        return Cache(self.keys.clone(), self.values.clone(), self.length)


class Layer(nn.Module):
    """Attention, then two linear layers, each beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.keys = nn.Linear(width, 3 * width)
        """Queries, keys and values."""
        self.mixed = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Cache | None, index: int) -> Tensor:
        """[B, T, W] -> [B, T, W]; with a cache, behind the tokens in it, and it is written to."""
        parts = self.keys(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))  # [B, T, 3, heads, D]
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # [B, heads, T, D] each
        mask, tokens = None, x.shape[1]
        if cache is not None:
            end = cache.length + tokens
            cache.keys[index, :, :, cache.length : end] = key
            cache.values[index, :, :, cache.length : end] = value
            key, value = cache.keys[index, :, :, :end], cache.values[index, :, :, :end]
            if tokens > 1 and cache.length:
                mask = torch.ones(tokens, end, dtype=torch.bool, device=x.device).tril_(cache.length)
        causal = mask is None and tokens > 1
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        x = x + self.mixed(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.norm(x))))


class CausalTransformer(nn.Module):
    """Tokens [B, T, W] that are embedded already; places are learned."""

    def __init__(self, width: int, layers: int, heads: int, most_tokens: int) -> None:
        super().__init__()
        self.width, self.heads, self.most_tokens = width, heads, most_tokens
        self.places = nn.Embedding(most_tokens, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Every output has seen its own token and those before it."""
        return self._through(x, None)

    def empty(self, batch: int) -> Cache:
        """A cache that has read nothing."""
        shape = (len(self.layers), batch, self.heads, self.most_tokens, self.width // self.heads)
        device = self.places.weight.device
        return Cache(torch.empty(shape, device=device), torch.empty(shape, device=device), 0)

    @torch.no_grad()
    def go_on(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Read on behind what is in the cache: outputs for these tokens, and the longer cache."""
        return self._through(x, cache), Cache(cache.keys, cache.values, cache.length + x.shape[1])

    def _through(self, x: Tensor, cache: Cache | None) -> Tensor:
        begin = 0 if cache is None else cache.length
        x = x + self.places.weight[begin : begin + x.shape[1]]
        for index, layer in enumerate(self.layers):
            x = layer(x, cache, index)
        return self.norm(x)
