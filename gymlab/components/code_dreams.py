"""V and M of World Models together: episodes of an environment as codes, and dreams of M as observations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gymlab.components.linear_controllers import ActionMap
from gymlab.components.mdn_rnn import MDNRNN, Asleep
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.vae import Vision


class CodeDreams:
    """Takes observations and actions as the environment has them, and gives what V and M make of them in the same units."""

    def __init__(self, vision: Vision, model: MDNRNN, parts: ObservationParts, actions: ActionMap) -> None:
        self.vision = vision
        self.model = model
        self.parts = parts
        self.actions = actions

    @torch.no_grad()
    def episode(self, observations: np.ndarray, actions: np.ndarray, starts: bool) -> tuple[Tensor, Tensor, Tensor]:
        """z, action and is_first [T, 1, ...] of one episode, from its start or from later on; each z is the likeliest."""
        device = self.model.bias.device
        seen = torch.from_numpy(self.parts.split(observations)[self.vision.key]).to(device)
        z = self.vision.draw(self.vision(seen), None).unsqueeze(1)
        action = torch.from_numpy(self.actions.from_environment(actions)).to(device).unsqueeze(1)
        begins = torch.zeros(z.shape[:2], dtype=torch.bool, device=device)
        begins[0] = starts
        return z, action, begins

    def shown(self, z: Tensor, action: Tensor, is_first: Tensor, seen: int) -> tuple[np.ndarray, np.ndarray]:
        """Reconstruction and dream [T - seen, B, ...] of sequences [T, B, ...] of which the dream sees the first `seen` steps."""
        return self.decoded(z[seen:]), self.decoded(self.model.look_ahead(z, action, is_first, seen))

    @torch.no_grad()
    def decoded(self, z: Tensor) -> np.ndarray:
        """Codes [T, B, Z] as V's part of observations [T, B, ...]."""
        decoded: np.ndarray = self.vision.decode(z.flatten(0, 1)).unflatten(0, z.shape[:2]).cpu().numpy()
        return decoded

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """V's part of observations [T, 1, ...] as observations [T, ...]."""
        return self.parts.join({self.vision.key: rows[:, 0]})

    def start(self, observations: np.ndarray, actions: np.ndarray, starts: bool) -> Asleep:
        """A dream that has seen one episode [T, ...], from its start or from later on, to its last observation."""
        return self.model.fall_asleep(*self.episode(observations, actions, starts))

    def step(
        self, state: Asleep, actions: np.ndarray, temperature: float, generator: np.random.Generator | None
    ) -> tuple[Asleep, np.ndarray, np.ndarray, np.ndarray]:
        """One step of B dreams: where they are, observations [B, ...], rewards [B] and ends [B].

        z is drawn at the temperature with a seed from the generator; without one it is the likeliest.
        """
        drawn = None
        if generator is not None:
            drawn = torch.Generator(state.z.device).manual_seed(int(generator.integers(2**63)))
        taken = torch.from_numpy(self.actions.from_environment(actions)).to(state.z.device)
        heat = 0.0 if generator is None else temperature
        z, reward, ends, hidden = self.model.dream(state.z, taken, state.begins, state.hidden, heat, drawn)
        observation = self.parts.restored({self.vision.key: self.decoded(z[None])[0]})
        return Asleep(z, hidden, torch.zeros_like(ends)), observation, reward.cpu().numpy(), ends.cpu().numpy()
