"""Layers as Keras begins them, which the authors of Dreamer v1 and v2 leave to it."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


def keras_start(layer: Layer) -> Layer:
    """Glorot's uniform weights, within sqrt(6 / (inputs + outputs)), and zero biases."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def keras_gru(inputs: int, size: int) -> nn.GRUCell:
    """A GRU cell: Glorot over the three input matrices side by side, orthogonal over the three recurrent ones, zero biases.

    Torch's cell computes what Keras's does: the reset gate multiplies the recurrent part of the candidate behind its matrix.
    """
    cell = nn.GRUCell(inputs, size)
    nn.init.xavier_uniform_(cell.weight_ih)
    nn.init.orthogonal_(cell.weight_hh)
    nn.init.zeros_(cell.bias_ih)
    nn.init.zeros_(cell.bias_hh)
    return cell
