"""The recurrent state-space model (Hafner et al. 2019): a deterministic memory and a stochastic latent, step by step.

    x[0]        x[1]        x[2]          observations, encoded
      |           |           |
    z[0] a[0]   z[1] a[1]   z[2]          latents: posterior of (h, x) while observing, prior of h while dreaming
      \\ |  \\    \\ |  \\      |
    h[0] --->   h[1] --->   h[2]          memory: h[t] = f(h[t-1], z[t-1], a[t-1])

Row t of `previous_action` is a[t-1]. Where is_first[t], memory, latent and previous action are zero before the step: nothing
of one episode reaches another. All arrays are time first, [T, B, ...].

What does not depend on the memory is computed for all steps at once: the parts of the inputs that come from observations
and actions before the loop, the prior after it.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.block_rssm import BlockStep, ObservedSequence, Weights
from gymlab.components.full_precision import full_precision
from gymlab.components.keras_layers import keras_gru, keras_start
from gymlab.components.latents import CategoricalLatent, Latent
from gymlab.components.normed_layers import NORM_EPS, NormedLayer, NormSiLU, init_truncated_normal, normed_linear
from gymlab.errors import ConfigError


@dataclass(slots=True)
class State:
    """Memory and latent, with any leading dimensions."""

    deter: Tensor
    """[..., D]."""
    stoch: Tensor
    """[..., S]."""

    @property
    def features(self) -> Tensor:
        """[..., D + S] what all heads see."""
        return torch.cat([self.deter, self.stoch], -1)

    def detach(self) -> State:
        """The same without its history."""
        return State(self.deter.detach(), self.stoch.detach())

    def flatten(self) -> State:
        """[T, B, ...] as [T * B, ...]."""
        return State(self.deter.flatten(0, 1), self.stoch.flatten(0, 1))


class Cell(nn.Module):
    """How the memory moves on. `inputs` does what can be done for all steps at once."""

    deter: int

    @abstractmethod
    def inputs(self, actions: Tensor) -> Tensor:
        """The part of the step that actions [..., A] alone decide."""

    @abstractmethod
    def forward(self, deter: Tensor, stoch: Tensor, inputs: Tensor) -> Tensor:
        """The next memory [B, D]."""


class BlockGRU(Cell):
    """Dreamer v3's memory: gates from block-diagonal matrices, which cost an eighth at the same width.

    Inside, rows are spread over blocks, [G, B, D / G]: block by block the matrices are plain, and nothing is copied to and fro.
    """

    slowness: Tensor

    def __init__(self, deter: int, stoch: int, action: int, hidden: int, blocks: int = 8) -> None:
        super().__init__()
        if deter % blocks:
            raise ConfigError(f"deter: {deter} cannot be cut into {blocks} blocks. Set a multiple of blocks.")
        self.deter, self.hidden, self.blocks = deter, hidden, blocks
        self.from_deter = NormedLayer(deter, hidden)
        self.from_stoch = NormedLayer(stoch, hidden)
        self.from_action = NormedLayer(action, hidden)
        # One matrix in the authors' program: each block takes its part of the memory and all of the three inputs.
        fan_in, width = deter + 3 * hidden * blocks, deter // blocks
        self.mix_deter, self.mix_inputs, self.gates = (
            nn.Parameter(init_truncated_normal(torch.empty(blocks, inputs, outputs), fan))
            for inputs, outputs, fan in (
                (width, width, fan_in),
                (3 * hidden, width, fan_in),  # memory, latent, action
                (width, 3 * width, deter),
            )
        )
        self.mix_bias = nn.Parameter(torch.zeros(blocks, 1, width))
        self.mix_norm = NormSiLU(deter, blocks)
        self.gates_bias = nn.Parameter(torch.zeros(blocks, 1, 3 * width))
        # The update gate begins at sigmoid(-1): the memory changes slowly unless it has learned otherwise.
        slowness = torch.tensor([0.0, 0.0, 1.0]).repeat_interleave(width).expand(blocks, 1, -1)
        self.register_buffer("slowness", slowness.clone(), persistent=False)

    def inputs(self, actions: Tensor) -> Tensor:
        """Actions [..., A], scaled into [-1, 1], through their own layer."""
        x: Tensor = self.from_action(actions / actions.detach().abs().clamp(min=1))
        return x

    def forward(self, deter: Tensor, stoch: Tensor, inputs: Tensor) -> Tensor:
        """h' = u c + (1 - u) h, with c = tanh(r c~): the reset gate multiplies the candidate, not the memory."""
        spread = deter.unflatten(-1, (self.blocks, -1)).transpose(0, 1)  # [G, B, D / G]
        shared = torch.cat([self.from_deter(deter), self.from_stoch(stoch), inputs], -1)  # [B, 3 hidden]
        mixed = torch.baddbmm(self.mix_bias, shared.expand(self.blocks, -1, -1), self.mix_inputs)
        mixed = torch.baddbmm(mixed, spread, self.mix_deter)
        gates = torch.baddbmm(self.gates_bias - self.slowness, self.mix_norm(mixed), self.gates)  # [G, B, 3 D / G]
        # The memory is kept in float32: in halves it would forget by rounding.
        reset, candidate, update = gates.to(spread.dtype).chunk(3, -1)
        candidate, update = torch.tanh(torch.sigmoid(reset) * candidate), torch.sigmoid(update)
        # The result lies in memory as its first argument does: row by row, so that the view below is free.
        moved = torch.lerp(spread, candidate, update)
        return moved.transpose(0, 1).flatten(1)


class LayerBefore(Cell):
    """A cell with one layer of latent and action before it, whose two halves are multiplied apart."""

    def __init__(self, deter: int, stoch: int, action: int, hidden: int) -> None:
        super().__init__()
        self.deter = deter
        joint = keras_start(nn.Linear(stoch + action, hidden))
        self.from_stoch = nn.Linear(stoch, hidden)
        self.from_action = nn.Linear(action, hidden, bias=False)
        with torch.no_grad():
            self.from_stoch.weight.copy_(joint.weight[:, :stoch])
            self.from_stoch.bias.zero_()
            self.from_action.weight.copy_(joint.weight[:, stoch:])

    def inputs(self, actions: Tensor) -> Tensor:
        """The action's share of the input layer."""
        return self.from_action(actions)


class KerasGRU(LayerBefore):
    """Dreamer v1's memory: the GRU of Keras."""

    def __init__(self, deter: int, stoch: int, action: int, hidden: int) -> None:
        super().__init__(deter, stoch, action, hidden)
        self.gru = keras_gru(hidden, deter)

    @full_precision
    def forward(self, deter: Tensor, stoch: Tensor, inputs: Tensor) -> Tensor:
        """h' = (1 - u) c + u h, with c = tanh(x C + r (h D)): the gate u keeps the memory, and 0.5 of it at the start."""
        moved: Tensor = self.gru(functional.elu(self.from_stoch(stoch) + inputs), deter)
        return moved


class NormedGRU(LayerBefore):
    """A GRU from one matrix: normalised, slow to update (bias -1) and, as DreamerV2's, with a bias before the norm; or plain."""

    def __init__(
        self, deter: int, stoch: int, action: int, hidden: int, *, normed: bool, bias: bool | None = None
    ) -> None:
        super().__init__(deter, stoch, action, hidden)
        self.gates = keras_start(nn.Linear(deter + hidden, 3 * deter, bias=not normed if bias is None else bias))
        self.norm = nn.LayerNorm(3 * deter, eps=1e-3) if normed else nn.Identity()
        self.update_bias = -1.0 if normed else 0.0

    def forward(self, deter: Tensor, stoch: Tensor, inputs: Tensor) -> Tensor:
        """h' = u c + (1 - u) h, with c = tanh(r c~)."""
        x = functional.elu(self.from_stoch(stoch) + inputs)
        reset, candidate, update = self.norm(self.gates(torch.cat([deter, x], -1))).to(deter.dtype).chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        return torch.lerp(deter, candidate, torch.sigmoid(update + self.update_bias))


class RSSM(nn.Module):
    """Memory, prior and posterior of a world model."""

    def __init__(
        self, cell: Cell, latent: Latent, embedding: int, hidden: int, *, prior_layers: int, normed: bool
    ) -> None:
        super().__init__()
        self.cell = cell
        self.latent = latent
        self.deter = cell.deter
        self.prior_net = _mlp([cell.deter] + [hidden] * prior_layers, latent.parameter_size, normed)
        # One layer of memory and observation; its two halves are multiplied apart.
        joint = _linear(cell.deter + embedding, hidden, normed)
        self.posterior_deter = nn.Parameter(joint.weight.detach()[:, : cell.deter].t().contiguous())
        self.posterior_embedding = nn.Parameter(joint.weight.detach()[:, cell.deter :].contiguous())
        self.posterior_bias = nn.Parameter(joint.bias.detach())
        self.posterior_norm = _after(hidden, normed)
        self.posterior_out = _linear(hidden, latent.parameter_size, normed)

    def initial(self, batch: int, device: torch.device | None = None) -> State:
        """All zeros."""
        return State(torch.zeros(batch, self.deter, device=device), torch.zeros(batch, self.latent.size, device=device))

    def observe(
        self, embedding: Tensor, previous_action: Tensor, is_first: Tensor, state: State, noise: Tensor | None
    ) -> tuple[State, Tensor]:
        """Posterior states [T, B, ...] and their parameters [T, B, P] along a sequence that begins after `state`."""
        keep = (~is_first).to(state.deter.dtype).unsqueeze(-1)  # [T, B, 1]
        inputs = self.cell.inputs(previous_action * keep)
        observed = functional.linear(embedding, self.posterior_embedding, self.posterior_bias)
        if (weights := self._written_out()) is not None:
            fixed = (keep, noise, self.latent, NORM_EPS)
            deter, stoch, parameter = ObservedSequence.apply(
                observed, inputs, state.deter, state.stoch, *fixed, *weights
            )
            return State(deter, stoch), parameter
        input_steps, observed_steps, keeps = inputs.unbind(0), observed.unbind(0), keep.unbind(0)
        noises = [None] * len(inputs) if noise is None else noise.unbind(0)
        # Most steps begin no episode: theirs is a look at one flag instead of two products.
        begins: list[bool] = is_first.any(1).tolist()
        deter, stoch = state.deter, state.stoch
        deters, stochs, parameters = [], [], []
        for t, begin in enumerate(begins):
            if begin:
                deter, stoch = deter * keeps[t], stoch * keeps[t]
            deter = self.cell(deter, stoch, input_steps[t])
            belief = torch.addmm(observed_steps[t], deter, self.posterior_deter)
            posterior = self.posterior_out(self.posterior_norm(belief)).to(deter.dtype)
            stoch = self.latent.sample(posterior, noises[t])
            deters.append(deter)
            stochs.append(stoch)
            parameters.append(posterior)
        return State(torch.stack(deters), torch.stack(stochs)), torch.stack(parameters)

    def _written_out(self) -> Weights | None:
        """What a sequence is computed with in one node, its gradient written out: v3's memory and latents, at full precision."""
        cell, norm, out = self.cell, self.posterior_norm, self.posterior_out
        if not (
            isinstance(cell, BlockGRU) and isinstance(norm, NormSiLU) and isinstance(self.latent, CategoricalLatent)
        ):
            return None
        if torch.is_autocast_enabled(self.posterior_deter.device.type):
            return None
        return Weights(
            deter=cell.from_deter.linear.weight.t(),
            deter_bias=cell.from_deter.linear.bias,
            stoch=cell.from_stoch.linear.weight.t(),
            stoch_bias=cell.from_stoch.linear.bias,
            scale=torch.stack([cell.from_deter.norm.scale, cell.from_stoch.norm.scale]),
            mix_inputs=cell.mix_inputs,
            mix_deter=cell.mix_deter,
            mix_bias=cell.mix_bias,
            mix_scale=cell.mix_norm.scale,
            gates=cell.gates,
            gates_bias=cell.gates_bias - cell.slowness,
            posterior=self.posterior_deter,
            posterior_scale=norm.scale,
            logits=out.weight.t(),
            logits_bias=out.bias,
        )

    def prior(self, deter: Tensor) -> Tensor:
        """Parameters of the latent that the memory alone expects."""
        parameters: Tensor = self.prior_net(deter).to(deter.dtype)
        return parameters

    def dream(self, state: State, action: Tensor, noise: Tensor | None) -> State:
        """One step without an observation, after taking `action` in `state`."""
        deter = self.cell(state.deter, state.stoch, self.cell.inputs(action))
        return State(deter, self.latent.sample(self.prior(deter), noise))

    @torch.no_grad()
    def dreamer(self) -> Callable[[State, Tensor, Tensor | None], State]:
        """`dream` as a function for many steps of many rows with the weights of now, without gradients."""
        if (weights := self._written_out()) is None:
            return self.dream
        move = BlockStep(weights, NORM_EPS)

        @torch.no_grad()
        def dream(state: State, action: Tensor, noise: Tensor | None) -> State:
            deter = move(state.deter, state.stoch, self.cell.inputs(action))
            return State(deter, self.latent.sample(self.prior(deter), noise))

        return dream


def _linear(inputs: int, outputs: int, normed: bool) -> nn.Linear:
    return normed_linear(inputs, outputs) if normed else keras_start(nn.Linear(inputs, outputs))


def _after(size: int, normed: bool) -> nn.Module:
    return NormSiLU(size) if normed else nn.ELU()


def _mlp(sizes: list[int], outputs: int, normed: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, size in itertools.pairwise(sizes):
        layers += [_linear(inputs, size, normed), _after(size, normed)]
    return nn.Sequential(*layers, _linear(sizes[-1], outputs, normed))
