"""A whole observed sequence of DreamerV3's recurrent model as one node of the graph, its gradient written out.

    h, z, a of the step before         memory [B, D], latent [B, S], action
    x = NormSiLU of h, of z, of a      [B, 3 H]
    m = x M + h K                      mixed block by block, [G, B, W] with D = G W
    r, c, u = NormSiLU(m) Q            h' = h + sigmoid(u) (tanh(sigmoid(r) c) - h)
    l = NormSiLU(o + h' P) L           o from the observation; z' is drawn from the logits l

A sequence has many steps of few rows: what autograd does around each small operation takes longer than the operation. Here
the loop back goes along memory and latent alone. What does not depend on what comes from behind, the slopes of all steps, is computed
before it; the gradients of the weights, products over all steps, after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gymlab.components.normed_layers import inverse_rms

if TYPE_CHECKING:
    from gymlab.components.latents import CategoricalLatent

ops = torch.ops.aten
FEATURES, SPREAD = (-1,), (-3, -1)
"""Dimensions that a norm is taken over: of a row, and of a row that is spread over blocks."""


class Weights(NamedTuple):
    """What the loop multiplies by; matrices as [inputs, outputs]."""

    deter: Tensor  # [D, H]
    deter_bias: Tensor  # [H]
    stoch: Tensor  # [S, H]
    stoch_bias: Tensor  # [H]
    scale: Tensor  # [2, H] of the norms behind the two
    mix_inputs: Tensor  # [G, 3 H, W]
    mix_deter: Tensor  # [G, W, W]
    mix_bias: Tensor  # [G, 1, W]
    mix_scale: Tensor  # [G, 1, W]
    gates: Tensor  # [G, W, 3 W]
    gates_bias: Tensor  # [G, 1, 3 W]
    posterior: Tensor  # [D, H']
    posterior_scale: Tensor  # [H']
    logits: Tensor  # [H', S]
    logits_bias: Tensor  # [S]


class ObservedSequence(torch.autograd.Function):
    """Posterior states and logits along a sequence."""

    @staticmethod
    def forward(
        ctx: Any,
        observed: Tensor,
        actions: Tensor,
        deter: Tensor,
        stoch: Tensor,
        keep: Tensor,
        noise: Tensor | None,
        latent: CategoricalLatent,
        eps: float,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """observed [T, B, H'], actions [T, B, H] through their layer, keep [T, B, 1] -> memories, latents, logits [T, B, ...]."""
        w = Weights(*(weight.contiguous() for weight in weights))
        (length, count, hidden), blocks, width = actions.shape, len(w.gates), w.gates.shape[1]
        inputs = actions.new_empty(length, count, 2, hidden)  # of the first two norms
        mixed = actions.new_empty(length, blocks, count, width)
        gates = actions.new_empty(length, blocks, count, 3 * width)
        beliefs = torch.empty_like(observed)
        logits = actions.new_empty(length, count, latent.parameter_size)
        deters = actions.new_empty(length, count, blocks * width)
        stochs = actions.new_empty(length, count, latent.size)
        acted = torch.baddbmm(w.mix_bias, actions.flatten(0, 1).expand(blocks, -1, -1), w.mix_inputs[:, 2 * hidden :])
        acted = acted.unflatten(1, (length, count)).transpose(0, 1)  # [T, G, B, W]
        mix_states = w.mix_inputs[:, : 2 * hidden].contiguous()
        # Most steps begin no episode: theirs is a look at one flag instead of two products.
        begins: list[bool] = (keep == 0).flatten(1).any(1).tolist()
        before, drawn = deter, stoch
        for t, begin in enumerate(begins):
            if begin:
                before, drawn = before * keep[t], drawn * keep[t]
            torch.addmm(w.deter_bias, before, w.deter, out=inputs[t, :, 0])
            torch.addmm(w.stoch_bias, drawn, w.stoch, out=inputs[t, :, 1])
            states = _norm_silu(inputs[t], w.scale, eps, FEATURES).flatten(1).expand(blocks, -1, -1)
            spread = before.unflatten(-1, (blocks, width)).transpose(0, 1)  # [G, B, W]
            torch.baddbmm(acted[t], states, mix_states, out=mixed[t]).baddbmm_(spread, w.mix_deter)
            torch.baddbmm(w.gates_bias, _norm_silu(mixed[t], w.mix_scale, eps, SPREAD), w.gates, out=gates[t])
            reset, candidate, update = gates[t].chunk(3, -1)
            candidate = reset.sigmoid().mul_(candidate).tanh_()
            moved = deters[t].unflatten(-1, (blocks, width)).transpose(0, 1)
            torch.lerp(spread, candidate, update.sigmoid(), out=moved)
            torch.addmm(observed[t], deters[t], w.posterior, out=beliefs[t])
            belief = _norm_silu(beliefs[t], w.posterior_scale, eps, FEATURES)
            torch.addmm(w.logits_bias, belief, w.logits, out=logits[t])
            stochs[t] = latent.sample(logits[t], None if noise is None else noise[t])
            before, drawn = deters[t], stochs[t]
        ctx.latent, ctx.eps, ctx.begins = latent, eps, begins
        ctx.save_for_backward(actions, deter, stoch, keep, inputs, mixed, gates, beliefs, deters, stochs, logits, *w)
        return deters, stochs, logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all that is learned, and of the state that the sequence began after."""
        d_deters, d_stochs, d_logits = gradients
        actions, deter, stoch, keep, inputs, mixed, gates, beliefs, deters, stochs, logits, *weights = ctx.saved_tensors
        w = Weights(*weights)
        (length, count, hidden), blocks, width = actions.shape, len(w.gates), w.gates.shape[1]
        before = torch.cat([deter[None], deters[:-1]]) * keep
        drawn = torch.cat([stoch[None], stochs[:-1]]) * keep
        of_inputs = _Slopes.of(inputs, w.scale, ctx.eps, FEATURES)
        of_mixed = _Slopes.of(mixed, w.mix_scale, ctx.eps, SPREAD)
        of_beliefs = _Slopes.of(beliefs, w.posterior_scale, ctx.eps, FEATURES)
        spread = before.unflatten(-1, (blocks, width)).transpose(1, 2)  # [T, G, B, W]
        of_gates, stays = _gate_slopes(gates, spread)
        probabilities = logits.unflatten(-1, (ctx.latent.classes, ctx.latent.groups)).softmax(-2)
        d_logits = d_logits.clone()
        d_beliefs, d_mixed, d_inputs = (torch.empty_like(x) for x in (beliefs, mixed, inputs))
        d_gates = torch.empty_like(of_gates)
        d_belief_values, d_mixed_values = torch.empty_like(beliefs), torch.empty_like(mixed)
        d_shared = actions.new_empty(length, count, 3, hidden)
        # Small products are several times quicker with their second factor in order.
        back = Weights(*(x.transpose(-1, -2).contiguous() if x.dim() > 1 else x for x in w))
        mix_back = torch.cat([back.mix_inputs, back.mix_deter], -1)  # [G, W, 3 H + W]
        d_deter, d_stoch = torch.zeros_like(deter), torch.zeros_like(stoch)
        for t in reversed(range(length)):
            d_deter += d_deters[t]
            d_stoch += d_stochs[t]
            d_logits[t] += ctx.latent.straight_through(probabilities[t], d_stoch)
            torch.mm(d_logits[t], back.logits, out=d_belief_values[t])
            of_beliefs.back(t, d_belief_values[t], d_beliefs[t])
            d_deter.addmm_(d_beliefs[t], back.posterior)
            d_spread = d_deter.unflatten(-1, (blocks, 1, width)).transpose(0, 1)  # [G, B, 1, W]
            torch.mul(d_spread, of_gates[t], out=d_gates[t])
            torch.bmm(d_gates[t].flatten(-2), back.gates, out=d_mixed_values[t])
            of_mixed.back(t, d_mixed_values[t], d_mixed[t])
            d_mix = torch.bmm(d_mixed[t], mix_back)
            torch.sum(d_mix[..., : 3 * hidden], 0, out=d_shared[t].view(count, -1))
            of_inputs.back(t, d_shared[t, :, :2], d_inputs[t])
            d_deter = (d_deter * stays[t]).add_(d_mix[..., 3 * hidden :].transpose(0, 1).flatten(1))
            d_deter.addmm_(d_inputs[t, :, 0], back.deter)
            d_stoch = d_inputs[t, :, 1] @ back.stoch
            if ctx.begins[t]:
                d_deter, d_stoch = d_deter * keep[t], d_stoch * keep[t]
        shared = torch.cat([of_inputs.value.flatten(2), actions], -1)
        d_mixed, d_gates = _by_block(d_mixed), _by_block(d_gates.flatten(-2))
        of_weights = Weights(
            deter=_product(before, d_inputs[:, :, 0]),
            deter_bias=d_inputs[:, :, 0].sum((0, 1)),
            stoch=_product(drawn, d_inputs[:, :, 1]),
            stoch_bias=d_inputs[:, :, 1].sum((0, 1)),
            scale=of_inputs.of_scale(d_shared[:, :, :2], (0, 1)),
            mix_inputs=shared.flatten(0, 1).t() @ d_mixed,
            mix_deter=_by_block(spread).transpose(1, 2) @ d_mixed,
            mix_bias=d_mixed.sum(1, keepdim=True),
            mix_scale=of_mixed.of_scale(d_mixed_values, (0, 2)).unsqueeze(1),
            gates=_by_block(of_mixed.value).transpose(1, 2) @ d_gates,
            gates_bias=d_gates.sum(1, keepdim=True),
            posterior=_product(deters, d_beliefs),
            posterior_scale=of_beliefs.of_scale(d_belief_values, (0, 1)),
            logits=_product(of_beliefs.value, d_logits),
            logits_bias=d_logits.sum((0, 1)),
        )
        return d_beliefs, d_shared[:, :, 2], d_deter, d_stoch, None, None, None, None, *of_weights


class BlockStep:
    """One step of the memory for many rows, without gradients: rows stay whole, and what is not a product touches whole stretches."""

    def __init__(self, weights: Weights, eps: float) -> None:
        self.weights, self.eps = weights, eps
        self.blocks, inputs, self.width = weights.mix_inputs.shape
        self.mix_inputs = weights.mix_inputs.transpose(0, 1).reshape(inputs, -1)  # [3 H, D]
        self.mix_bias, self.mix_scale = weights.mix_bias.flatten(), weights.mix_scale.flatten()
        matrices, biases = (parts.chunk(3, -1) for parts in (weights.gates, weights.gates_bias))
        self.gates = [(bias.contiguous(), matrix.contiguous()) for bias, matrix in zip(biases, matrices, strict=True)]

    def __call__(self, deter: Tensor, stoch: Tensor, action: Tensor) -> Tensor:
        """[B, D], [B, S], [B, H] -> the next memory [B, D]."""
        w, count = self.weights, len(deter)
        inputs = deter.new_empty(count, 2, len(w.deter_bias))
        torch.addmm(w.deter_bias, deter, w.deter, out=inputs[:, 0])
        torch.addmm(w.stoch_bias, stoch, w.stoch, out=inputs[:, 1])
        shared = torch.cat([_norm_silu(inputs, w.scale, self.eps, FEATURES).flatten(1), action], -1)
        mixed, spread = torch.addmm(self.mix_bias, shared, self.mix_inputs), self._spread(deter)
        self._spread(mixed).baddbmm_(spread, w.mix_deter)
        mixed = self._spread(_norm_silu(mixed, self.mix_scale, self.eps, FEATURES))
        reset, candidate, update = (torch.baddbmm(bias, mixed, matrix) for bias, matrix in self.gates)
        # The result lies in memory as its first argument does: row by row, so that the view below is free.
        moved = torch.lerp(spread, candidate.mul_(reset.sigmoid_()).tanh_(), update.sigmoid_())
        return moved.transpose(0, 1).flatten(1)

    def _spread(self, rows: Tensor) -> Tensor:
        """[B, D] as [G, B, W]."""
        return rows.unflatten(-1, (self.blocks, self.width)).transpose(0, 1)


class _Slopes(NamedTuple):
    """Of NormSiLU at all steps: with n = x / rms(x) and y = scale n, d x = (g - n mean(g n)) / rms for g = scale silu'(y) d silu."""

    value: Tensor
    straight: Tensor
    """scale silu'(y) / rms."""
    shared: Tensor
    """scale silu'(y) n, of which the mean is taken."""
    length: Tensor
    """n / rms."""
    in_scale: Tensor
    """silu'(y) n."""
    dims: tuple[int, ...]

    @classmethod
    def of(cls, x: Tensor, scale: Tensor, eps: float, dims: tuple[int, ...]) -> _Slopes:
        """At x [T, ...]."""
        inverse = inverse_rms(x, eps, dims)
        normal = x * inverse
        scaled = normal * scale
        slope = ops.silu_backward(torch.ones_like(scaled), scaled)
        in_scale = slope * normal
        straight = slope.mul_(scale).mul_(inverse)
        return cls(functional.silu(scaled), straight, in_scale * scale, normal.mul_(inverse), in_scale, dims)

    def back(self, t: int, gradient: Tensor, out: Tensor) -> None:
        """From the gradient of the value to that of x, at one step."""
        mean = (gradient * self.shared[t]).mean(self.dims, keepdim=True)
        torch.mul(gradient, self.straight[t], out=out).addcmul_(self.length[t], mean, value=-1)

    def of_scale(self, gradients: Tensor, dims: tuple[int, ...]) -> Tensor:
        """The gradient of the scale, from those of all values."""
        return (gradients * self.in_scale).sum(dims)


def _gate_slopes(gates: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Of h' = h + u (c - h) at all steps: in reset, candidate and update [T, G, B, 3, W], and in h itself [T, B, D]."""
    reset, candidate, update = gates.chunk(3, -1)
    reset, update = reset.sigmoid(), update.sigmoid()
    moved = torch.tanh(reset * candidate)
    of_candidate = (1 - moved.square()).mul_(update).mul_(reset)
    of_update = (moved - spread).mul_(update).mul_(1 - update)
    slopes = torch.stack([of_candidate * candidate * (1 - reset), of_candidate, of_update], -2)
    return slopes, (1 - update).transpose(1, 2).flatten(2)


def _norm_silu(x: Tensor, scale: Tensor, eps: float, dims: tuple[int, ...]) -> Tensor:
    return functional.silu((x * inverse_rms(x, eps, dims)).mul_(scale), inplace=True)


def _by_block(x: Tensor) -> Tensor:
    """[T, G, B, N] -> [G, T B, N]: all rows of a block."""
    return x.transpose(0, 1).flatten(1, 2)


def _product(inputs: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of a matrix [I, O] that took inputs [T, B, I], from that of its outputs [T, B, O]."""
    return inputs.flatten(0, 1).t() @ gradient.flatten(0, 1)
