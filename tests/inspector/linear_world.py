"""A workflow with a world model, for tests: principal components of what was seen, and linear dynamics between them.

It acts at random and learns to expect: x' = mean + basis z',  z' = M [z, action, 1].
"""

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from gymlab.config.schema import Config
from gymlab.engine.workflow import CollectResult, Dream, DreamStep, PhaseView, Recording, Workflow, register_workflow


class LinearWorldConfig(Config):
    n_steps: Annotated[int, Field(ge=1)] = 200
    """Steps in each environment between two fits."""
    latent_size: Annotated[int, Field(ge=1)] = 12
    """Most principal components."""


class LinearModel(nn.Module):
    def __init__(self, size: int, latent: int, actions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("basis", torch.zeros(latent, size))
        self.register_buffer("dynamics", torch.zeros(latent + actions + 1, latent))

    def encode(self, observations: torch.Tensor) -> torch.Tensor:
        return (observations - self.mean) @ self.basis.T

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        return latent @ self.basis + self.mean

    def step(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.cat([latent, actions, torch.ones(len(latent), 1)], dim=1) @ self.dynamics


@register_workflow("linear_world")
class LinearWorld(Workflow):
    Config: ClassVar[type[Config]] = LinearWorldConfig
    phases: ClassVar[tuple[dict[str, Any], ...]] = ({"name": "fit", "type": "online", "hooks": ["collect"]},)

    def initialize(self) -> None:
        shape = self.context.observation_space.shape
        size = int(np.prod(shape))
        self.actions = int(self.context.action_space.n)
        self.model = LinearModel(size, min(size, self.config.latent_size), self.actions)
        self.modules = {"model": self.model}
        self.generators = {name: self.context.seeds.child(name).generator() for name in ("act", "collect")}

    def act(self, observation, state=None, *, deterministic=False, action_mask=None):
        actions = self.generators["act"].integers(self.actions, size=len(observation))
        return actions, state, {"probabilities": np.full((len(observation), self.actions), 1 / self.actions)}

    def collect(self, phase: PhaseView) -> CollectResult:
        environment = self.context.train_environment
        before, taken, after, episodes = [], [], [], []
        observation = environment.reset()
        for _ in range(self.config.n_steps):
            actions = self.generators["collect"].integers(self.actions, size=environment.num_envs)
            before.append(observation.copy())
            step = environment.step(actions)
            reached = step.observation.copy()
            if step.final_observation is not None:
                reached[step.ended] = step.final_observation[step.ended]
            taken.append(actions)
            after.append(reached)
            episodes += step.episodes
            observation = step.observation
        self._fit(*(np.concatenate(rows) for rows in (before, taken, after)))
        rows = self.config.n_steps * environment.num_envs
        return CollectResult(env_steps=rows, vec_steps=self.config.n_steps, episodes=tuple(episodes))

    def _fit(self, before, actions, after) -> None:
        x, following = (torch.from_numpy(rows.reshape(len(rows), -1)).float() for rows in (before, after))
        self.model.mean.copy_(x.mean(0))
        _, _, directions = torch.linalg.svd(x - self.model.mean, full_matrices=False)
        self.model.basis.copy_(directions[: len(self.model.basis)])
        inputs = torch.cat([self.model.encode(x), self._one_hot(actions), torch.ones(len(x), 1)], dim=1)
        self.model.dynamics.copy_(torch.linalg.lstsq(inputs, self.model.encode(following)).solution)

    def _one_hot(self, actions) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.as_tensor(np.asarray(actions)), self.actions).float()

    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Row k is k + 1 steps after `start`."""
        shape = recording.observations.shape[1:]
        seen = torch.from_numpy(recording.observations.reshape(len(recording.observations), -1)).float()
        truth = recording.observations[start + 1 : start + 1 + horizon]
        latent = self.model.encode(seen[start : start + 1])
        dreamt = []
        for action in recording.actions[start : start + horizon]:
            latent = self.model.step(latent, self._one_hot([int(action)]))
            dreamt.append(self.model.decode(latent)[0])
        again = self.model.decode(self.model.encode(seen[start + 1 : start + 1 + horizon]))
        dream = torch.stack(dreamt).numpy().reshape(horizon, *shape)
        constant = np.stack([recording.observations[start]] * horizon)
        return Dream(truth, again.numpy().reshape(horizon, *shape), dream, {"constant": constant})

    def dream_start(self, recording: Recording) -> torch.Tensor:
        """The last observation says everything."""
        seen = torch.from_numpy(recording.observations[-1:].reshape(1, -1)).float()
        return self.model.encode(seen)

    def dream_step(self, state, action, generator=None):
        """Nothing is drawn; each step is worth 1, and no episode ends."""
        space = self.context.observation_space
        latent = self.model.step(state, self._one_hot(action))
        observation = self.model.decode(latent).numpy().reshape(len(action), *space.shape)
        observation = np.clip(observation, space.low, space.high).astype(space.dtype)
        return latent, DreamStep(observation, np.ones(len(action)), np.zeros(len(action), bool))

    def get_state(self):
        return {"generators": {name: generator.bit_generator.state for name, generator in self.generators.items()}}

    def set_state(self, state):
        for name, saved in state["generators"].items():
            self.generators[name].bit_generator.state = saved
