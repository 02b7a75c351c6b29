"""M of World Models (Ha & Schmidhuber 2018): an LSTM that says what is seen next as a mixture of Normals.

    z[0] a[0]    z[1] a[1]    z[2] a[2]
        |            |            |
    s[0] -> LSTM -> s[1] -> LSTM -> s[2] ...       s[t] = (h, c) has taken in z[0..t-1], a[0..t-1]: C acts on z[t] and s[t]
                |            |
           p(z[1])      p(z[2])                    out of h[t+1]: mixture of z[t+1], reward and end of arriving there

`per_dimension` (the paper): each dimension of z has K components of its own. `joint`: one choice of K for all dimensions (Tallec's version).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
Kind = Literal["per_dimension", "joint"]


class Mixture(NamedTuple):
    """K Normals for each of Z dimensions; in a joint mixture the weights have one row for all dimensions."""

    logits: Tensor
    """[..., Z or 1, K] log weights, up to a constant."""
    mean: Tensor
    """[..., Z, K]."""
    log_std: Tensor
    """[..., Z, K]."""

    def nll(self, target: Tensor) -> Tensor:
        """-log p(target) [...], summed over the dimensions of [..., Z]."""
        deviation = (target.unsqueeze(-1) - self.mean) * torch.exp(-self.log_std)
        log_density = -0.5 * deviation.square() - self.log_std - HALF_LOG_TWO_PI  # [..., Z, K]
        if self.logits.shape[-2] != target.shape[-1]:
            log_density = log_density.sum(-2, keepdim=True)
        return -torch.logsumexp(functional.log_softmax(self.logits, -1) + log_density, -1).sum(-1)

    def weights(self, temperature: float = 1.0) -> Tensor:
        """Probabilities of the components: softmax(log weights / temperature)."""
        return functional.softmax(functional.log_softmax(self.logits, -1) / temperature, -1)

    def sample(self, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """[..., Z]: a component by its weight, then mean + std sqrt(temperature) noise; 0 is the mode."""
        if temperature == 0:
            return self.mode()
        weights = self.weights(temperature)
        # The largest p / e of exponential numbers e is a sample of p.
        chosen = (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1, keepdim=True)
        mean, log_std = self._of(chosen)
        return mean + log_std.exp() * math.sqrt(temperature) * torch.empty_like(mean).normal_(generator=generator)

    def mode(self) -> Tensor:
        """[..., Z]: the mean of the component with the largest weight."""
        return self._of(self.logits.argmax(-1, keepdim=True))[0]

    def _of(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation [..., Z] of the chosen components [..., Z or 1, 1]."""
        places = chosen.expand(*self.mean.shape[:-1], 1)
        return self.mean.gather(-1, places).squeeze(-1), self.log_std.gather(-1, places).squeeze(-1)


class Expected(NamedTuple):
    """What M says about the step after (z, a)."""

    mixture: Mixture
    reward: Tensor | None
    """[...] mean reward; None without that head."""
    end: Tensor | None
    """[...] logit of the episode's end; None without that head."""


class Hidden(NamedTuple):
    """The LSTM's state of B sequences, [B, H] each."""

    h: Tensor
    c: Tensor

    def forget(self, rows: Tensor) -> Hidden:
        """The same with the rows [B] that are True zeroed."""
        keep = ~rows.unsqueeze(-1)
        return Hidden(self.h * keep, self.c * keep)


class MDNRNN(nn.Module):
    """The LSTM and what is read off it. One bias a gate, as in the paper's code: the numbers of parameters are its own."""

    def __init__(
        self,
        latent: int,
        action: int,
        hidden: int = 256,
        components: int = 5,
        kind: Kind = "per_dimension",
        predicts_reward: bool = False,
        predicts_end: bool = False,
        sees_start: bool = False,
    ) -> None:
        """Make the network.

        latent, action: lengths Z and A of z and of action vectors.
        kind: whether each dimension has a mixture of its own, or all have one together.
        sees_start: the input also says whether z is an episode's first (the paper's Doom).
        """
        super().__init__()
        self.latent, self.hidden, self.components, self.kind = latent, hidden, components, kind
        self.predicts_reward, self.predicts_end, self.sees_start = predicts_reward, predicts_end, sees_start
        inputs = latent + action + sees_start
        self.input_weight = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        nn.init.xavier_uniform_(self.input_weight)
        for gate in self.hidden_weight.data.chunk(4):
            nn.init.orthogonal_(gate)
        # Gates are input, forget, cell, output; one that begins by remembering is learned sooner.
        self.bias.data[hidden : 2 * hidden] = 1.0
        rows = 1 if kind == "joint" else latent
        self.sizes = [rows * components, latent * components, latent * components, predicts_reward + predicts_end]
        self.output = nn.Linear(hidden, sum(self.sizes))

    def initial(self, count: int) -> Hidden:
        """The state before anything was seen."""
        zeros = self.bias.new_zeros(count, self.hidden)
        return Hidden(zeros, zeros)

    def forward(self, z: Tensor, action: Tensor, is_first: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        """Sequences z [T, B, Z], actions [T, B, A] and is_first [T, B] -> h after each step [T, B, H], and the last state.

        Where an episode begins the state is empty. Steps between two such times go through the LSTM in one call.
        """
        inputs = [z, action, is_first.unsqueeze(-1).to(z.dtype)] if self.sees_start else [z, action]
        x = torch.cat(inputs, -1)
        weights = [self.input_weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias)]
        cuts = is_first.any(1).nonzero().flatten().tolist()
        borders = sorted({0, len(x), *cuts})
        outputs = []
        for start, stop in pairwise(borders):
            state = state.forget(is_first[start])
            h, *last = torch.lstm(
                x[start:stop], [state.h[None], state.c[None]], weights, True, 1, 0.0, self.training, False, False
            )
            state = Hidden(last[0][0], last[1][0])
            outputs.append(h)
        return torch.cat(outputs), state

    def step(self, z: Tensor, action: Tensor, is_first: Tensor, state: Hidden) -> Hidden:
        """The state of B sequences after one more z [B, Z] and action [B, A]."""
        return self(z[None], action[None], is_first[None], state)[1]

    def expect(self, h: Tensor) -> Expected:
        """What comes after the steps that h [..., H] has taken in."""
        logits, mean, log_std, scalars = self.output(h).split(self.sizes, -1)
        shape = (-1, self.components)
        mixture = Mixture(logits.unflatten(-1, shape), mean.unflatten(-1, shape), log_std.unflatten(-1, shape))
        reward = scalars[..., 0] if self.predicts_reward else None
        return Expected(mixture, reward, scalars[..., -1] if self.predicts_end else None)

    def losses(
        self,
        z: Tensor,
        action: Tensor,
        is_first: Tensor,
        reward: Tensor,
        is_end: Tensor,
        state: Hidden,
        end_weight: float = 10.0,
    ) -> tuple[dict[str, Tensor], Hidden]:
        """Losses of sequences [T + 1, B, ...] that go on from a state, and the state after T steps, through which no gradient goes.

        Step t expects z, reward and end of step t + 1, unless that begins another episode. The NLL is a mean over dimensions. The reward's loss is
        half its squared error; ends count `end_weight` times.
        """
        h, last = self(z[:-1], action[:-1], is_first[:-1], state)
        expected = self.expect(h)
        known = (~is_first[1:]).to(z.dtype)  # [T, B]
        count = known.sum().clamp(min=1)
        losses = {"nll": (expected.mixture.nll(z[1:]) * known).sum() / (count * self.latent)}
        if expected.reward is not None:
            losses["reward"] = (0.5 * (expected.reward - reward[1:]).square() * known).sum() / count
        if expected.end is not None:
            error = functional.binary_cross_entropy_with_logits(
                expected.end, is_end[1:].to(z.dtype), reduction="none", pos_weight=z.new_tensor(end_weight)
            )
            losses["end"] = (error * known).sum() / count
        return losses, Hidden(last.h.detach(), last.c.detach())

    @torch.no_grad()
    def fall_asleep(self, z: Tensor, action: Tensor, is_first: Tensor) -> Asleep:
        """Where dreams are that have seen z [T, B, Z]; what was done at the last of them is not used."""
        hidden = self.initial(z.shape[1])
        if len(z) > 1:
            _, hidden = self(z[:-1], action[:-1], is_first[:-1], hidden)
        return Asleep(z[-1], hidden, is_first[-1])

    @torch.no_grad()
    def dream(
        self,
        z: Tensor,
        action: Tensor,
        is_first: Tensor,
        state: Hidden,
        temperature: float,
        generator: torch.Generator | None = None,
    ) -> Dreamt:
        """One step inside M: the next z, drawn at this temperature, and what comes with it."""
        state = self.step(z, action, is_first, state)
        expected = self.expect(state.h)
        reward = torch.ones_like(z[..., 0]) if expected.reward is None else expected.reward
        # A hard cut at one half, as in the paper: an end is decided by M, not by lot.
        ends = torch.zeros_like(reward, dtype=torch.bool) if expected.end is None else expected.end > 0
        return Dreamt(expected.mixture.sample(temperature, generator), reward, ends, state)

    @torch.no_grad()
    def look_ahead(self, z: Tensor, action: Tensor, is_first: Tensor, seen: int, temperature: float = 0.0) -> Tensor:
        """z of steps `seen` to T - 1, [T - seen, B, Z], given the first `seen` of z [T, B, Z] and all actions [T, B, A].

        Drawn at the temperature; at 0 each is the likeliest.
        """
        guess, hidden, begins = self.fall_asleep(z[:seen], action[:seen], is_first[:seen])
        guesses = []
        for taken in action[seen - 1 : -1]:
            guess, _, _, hidden = self.dream(guess, taken, begins, hidden, temperature)
            begins = torch.zeros_like(begins)
            guesses.append(guess)
        return torch.stack(guesses)


class Asleep(NamedTuple):
    """Where B dreams are: what is seen now, and what M remembers from before it."""

    z: Tensor
    """[B, Z]."""
    hidden: Hidden
    begins: Tensor
    """[B] bool; z is an episode's first."""


class Dreamt(NamedTuple):
    """Where B dreams are after a step."""

    z: Tensor
    """[B, Z]."""
    reward: Tensor
    """[B] for the step; 1 where M predicts none, so that it counts how long a dream lasts."""
    ends: Tensor
    """[B] bool; never, where M predicts none."""
    state: Hidden
