"""Acting on the state of a world model: observe, remember, choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymlab.components.actors import ActionDistribution, Choices
from gymlab.components.dreamer_networks import WorldModel
from gymlab.components.restored import restored_like
from gymlab.components.rssm import State
from gymlab.errors import ConfigError


class Memory:
    """What the agent remembers of N environments while it acts: the model's state and the newest actions."""

    def __init__(self, state: State, action: Tensor) -> None:
        self.state = state
        self.action = action

    def forget(self, rows: np.ndarray) -> Memory:
        """The same with the rows that are True zeroed."""
        if not rows.any():
            return self
        keep = torch.from_numpy(~rows).to(self.action.device).unsqueeze(-1)
        return Memory(State(self.state.deter * keep, self.state.stoch * keep), self.action * keep)

    def get_state(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        return {"deter": self.state.deter, "stoch": self.state.stoch, "action": self.action}

    def restored(self, saved: Mapping[str, Any]) -> Memory:
        """One of as many environments from what `get_state` gave."""
        found = {name: restored_like(own, saved[name], name) for name, own in self.get_state().items()}
        return Memory(State(found["deter"], found["stoch"]), found["action"])


class LatentActor:
    """Follows N environments with a model's state and draws actions from an actor that sees nothing else.

    Where a generator is given, latents and actions are drawn from it; without one they are the most likely ones.
    """

    def __init__(self, model: WorldModel, actor: nn.Module, actions: ActionDistribution) -> None:
        self.model = model
        self.actor = actor
        self.actions = actions

    def empty(self, count: int) -> Memory:
        """What is remembered before the first observation."""
        device = next(self.actor.parameters()).device
        return Memory(self.model.rssm.initial(count, device), torch.zeros(count, self.actions.size, device=device))

    @torch.no_grad()
    def observe(self, parts: Mapping[str, np.ndarray], memory: Memory, generator: np.random.Generator | None) -> State:
        """The state after one more observation [N, ...]."""
        device, count = memory.action.device, len(memory.action)
        embedding = self.model.encoder({key: torch.from_numpy(part).to(device) for key, part in parts.items()})
        begins = torch.zeros(1, count, dtype=torch.bool, device=device)
        noise = None
        if generator is not None:
            noise = self.model.rssm.latent.noise_from(generator, 1, count).to(device)
        states, _ = self.model.rssm.observe(embedding[None], memory.action[None], begins, memory.state, noise)
        return State(states.deter[0], states.stoch[0])

    @torch.no_grad()
    def choose(
        self, belief: State, mask: np.ndarray | None, generator: np.random.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Action vectors [N, A] and the parameters they were drawn with."""
        parameters, actions = self.actor(belief.features), self.actions
        if mask is not None:
            if not isinstance(actions, Choices):
                raise ConfigError("The environment gives an action mask, and continuous actions cannot be masked.")
            actions, parameters = actions.masked(parameters, mask)
        if generator is None:
            return actions.mode(parameters), parameters
        noise = actions.noise_from(generator, len(parameters)).to(parameters.device)
        return actions.sample(parameters, noise), parameters
