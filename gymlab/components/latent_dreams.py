"""Episodes of an environment through a recurrent state-space model: beside the truth, and step by step with actions of one's own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gymlab.components.actors import ActionDistribution
from gymlab.components.dreamer_networks import WorldModel
from gymlab.components.dreaming import decoded, look_ahead
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.rssm import State


class LatentDreams:
    """Takes observations and actions as the environment has them, and gives what a model makes of them in the same units."""

    def __init__(self, model: WorldModel, parts: ObservationParts, actions: ActionDistribution) -> None:
        self.model = model
        self.parts = parts
        self.actions = actions

    def beside(self, observations: np.ndarray, actions: np.ndarray, seen: int) -> tuple[np.ndarray, np.ndarray]:
        """Reconstruction and dream [T - seen, ...] of one episode [T, ...], of which a dream sees the first `seen` steps."""
        states = look_ahead(self.model, *self._episode(observations, actions), seen)
        reconstruction, dream = (
            self.parts.join({key: value[:, 0] for key, value in decoded(self.model, rows).items()}) for rows in states
        )
        return reconstruction, dream

    @torch.no_grad()
    def start(self, observations: np.ndarray, actions: np.ndarray) -> State:
        """The state [1, ...] of a dream that has seen one episode [T, ...] to its last observation; latents are the most likely ones."""
        rows, previous, begins, state = self._episode(observations, actions)
        embedding = self.model.encoder({key: value[:, 0] for key, value in rows.items()})
        states, _ = self.model.rssm.observe(embedding.unsqueeze(1), previous, begins, state, None)
        return State(states.deter[-1], states.stoch[-1])

    @torch.no_grad()
    def step(
        self, state: State, actions: np.ndarray, generator: np.random.Generator | None
    ) -> tuple[State, np.ndarray, np.ndarray, np.ndarray]:
        """One step of B dreams: states, observations [B, ...], rewards [B], and the chance of going on [B], the discount included; 1 without a continue head.

        Latents are drawn from the generator; without one they are the most likely ones.
        """
        model, device = self.model, state.deter.device
        noise = None if generator is None else model.rssm.latent.noise_from(generator, len(actions)).to(device)
        taken = torch.from_numpy(self.actions.from_environment(actions)).to(device)
        state = model.rssm.dream(state, taken, noise)
        parts = {key: value.cpu().numpy() for key, value in model.decoder(state).items()}
        reward, lives = model.reward.mean(state.features), torch.ones(len(taken))
        if model.going_on is not None:
            lives = torch.sigmoid(model.going_on(state.features).squeeze(-1))
        return state, self.parts.restored(parts), reward.float().cpu().numpy(), lives.float().cpu().numpy()

    def _episode(
        self, observations: np.ndarray, actions: np.ndarray
    ) -> tuple[Mapping[str, Tensor], Tensor, Tensor, State]:
        """One episode [T, ...] as a batch of one: observations, the action before each, `is_first`, and the state before all."""
        device = next(self.model.parameters()).device
        parts = self.parts.split(observations)
        rows = {key: torch.from_numpy(value).to(device).unsqueeze(1) for key, value in parts.items()}
        taken = torch.from_numpy(self.actions.from_environment(actions)).to(device)
        previous = torch.cat([torch.zeros_like(taken[:1]), taken[:-1]]).unsqueeze(1)
        begins = torch.zeros(len(taken), 1, dtype=torch.bool, device=device)
        return rows, previous, begins, self.model.rssm.initial(1, device)
