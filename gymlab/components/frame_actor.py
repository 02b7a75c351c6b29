"""Actor and critic of Δ-IRIS: a convolutional network on the frame, an LSTM, and two linear heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gymlab.components.delta_iris_config import DeltaIRISConfig
from gymlab.components.frame_codecs import FrameEncoder
from gymlab.components.symlog import TwoHot


@dataclass(frozen=True, slots=True)
class LSTMState:
    """What an LSTM remembers, [B, H] each."""

    h: Tensor
    c: Tensor

    def forget(self, rows: Tensor) -> LSTMState:
        """Without the rows [B] bool that begin an episode."""
        keep = (~rows).unsqueeze(-1)
        return LSTMState(self.h * keep, self.c * keep)


class FrameActor(nn.Module):
    """Shared trunk; the critic begins with 0 everywhere."""

    def __init__(self, config: DeltaIRISConfig, shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.frames = FrameEncoder(shape[0], config.actor_features, config.actor_channels, config.stages)
        grid = shape[1] // config.stages.stride
        self.lstm = nn.LSTMCell(config.actor_features * grid**2, config.lstm)
        self.two_hot = TwoHot(spacing="symlog") if config.values == "two_hot" else None
        self.actor = nn.Linear(config.lstm, num_actions)
        self.critic = nn.Linear(config.lstm, 1 if self.two_hot is None else self.two_hot.size)
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    def empty(self, batch: int) -> LSTMState:
        """Nothing remembered."""
        zeros = torch.zeros(batch, self.lstm.hidden_size, device=self.actor.weight.device)
        return LSTMState(zeros, zeros)

    def see(self, frames: Tensor) -> Tensor:
        """[..., C, S, S] -> [..., F]; row by row, channels last."""
        features: Tensor = self.frames(frames)
        return features.movedim(-3, -1).flatten(-3)

    def remember(self, seen: Tensor, state: LSTMState) -> LSTMState:
        """One step [B, F] further."""
        return LSTMState(*self.lstm(seen, (state.h, state.c)))

    @torch.no_grad()
    def warm_up(self, frames: Tensor) -> LSTMState:
        """The memory after frames [B, T, C, S, S]."""
        state = self.empty(len(frames))
        for seen in self.see(frames).unbind(1):
            state = self.remember(seen, state)
        return state

    @torch.no_grad()
    def values(self, frames: Tensor) -> Tensor:
        """[B, T, C, S, S] -> [T, B], each given the frames before it."""
        state, hidden = self.empty(len(frames)), []
        for seen in self.see(frames).unbind(1):
            state = self.remember(seen, state)
            hidden.append(state.h)
        return self.value(torch.stack(hidden))

    def value(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [...]."""
        outputs = self.critic(hidden).float()
        return outputs.squeeze(-1) if self.two_hot is None else self.two_hot.mean(outputs)

    def value_losses(self, hidden: Tensor, returns: Tensor) -> Tensor:
        """[..., H], [...] -> [...] squared error or cross-entropy."""
        outputs = self.critic(hidden).float()
        if self.two_hot is None:
            return (outputs.squeeze(-1) - returns).square()
        return self.two_hot.loss(outputs, returns)
