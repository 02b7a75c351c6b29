"""Playing inside a world model: dreams that begin where episodes of the real environment do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces

from gymlab.engine.playing import Playing
from gymlab.engine.seeding import SeedTree
from gymlab.engine.trace import entry_names, play_environment
from gymlab.engine.workflow import Recording, WorldModel, find_workflow, workflow_names
from gymlab.envs.painting import Painter, painter_of, tells_all
from gymlab.envs.world_model_env import WorldModelEnv
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.config.schema import Config
    from gymlab.engine.agent import Agent
    from gymlab.envs.subenv import SubEnv

MOST_STEPS = 10_000
"""Of a dream whose environment has no time limit."""


def dreaming_workflows() -> list[str]:
    """Algorithms that learn a world model which can be played in."""
    return [name for name in workflow_names() if issubclass(find_workflow(name), WorldModel)]


def world_model_of(agent: Agent) -> WorldModel:
    """The world model of an agent; an error says which algorithms have one."""
    workflow = agent.workflow
    if not isinstance(workflow, WorldModel):
        raise GymlabError(
            f"{agent.config.algo_id} has no world model to play in. Algorithms that learn one: "
            f"{', '.join(dreaming_workflows())}. For example: gymlab train CartPole-v1:dreamer_v3"
        )
    return workflow


def beginning(observation: Any, space: Space) -> Recording:
    """A recording of one observation, an episode's first."""
    # What was done there is not used, but it has to be an action.
    action = np.zeros(space.shape or (), space.dtype)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        action = action + space.start
    return Recording(np.asarray(observation)[None], action[None], np.array([True]))


def step_limit(config: Config, real: SubEnv) -> int:
    """Steps of the agent after which an episode of the real environment is cut off."""
    limit = real.get_max_episode_steps()
    return MOST_STEPS if limit is None else max(1, limit // config.frame_skip)


class Canvas:
    """Draws observations of a config's environment; where they tell all, an environment of its own poses for them."""

    def __init__(self, config: Config, env: SubEnv, *, enlarge: bool = True) -> None:
        """Draw for `env`; with `enlarge` small images are shown larger."""
        space = env.observation_space
        self._viewer: SubEnv | None = None
        if tells_all(space, env):
            self._viewer = play_environment(config, render=True)
            self._viewer.reset()
        self.paint: Painter = painter_of(
            space,
            nested=env.raw_observation_space,
            frame_stack=config.frame_stack,
            names=entry_names(config, int(np.prod(space.shape or (1,)))),
            viewer=self._viewer,
            enlarge=enlarge,
        )

    def close(self) -> None:
        """Free the environment that poses."""
        if self._viewer is not None:
            self._viewer.close()


class DreamGame(Playing):
    """The world model of an agent in play. Episode k begins where that of `Game` does for the same seed."""

    env: WorldModelEnv

    def __init__(self, agent: Agent, *, seed: int, render: bool, likeliest: bool = False, enlarge: bool = True) -> None:
        """Make it: dreams are drawn, from the seed, or with `likeliest` each step is what the model expects most."""
        model = world_model_of(agent)
        self._real = play_environment(agent.config, seed=seed)
        agent.check_spaces(self._real.raw_observation_space, self._real.action_space)
        self._canvas = Canvas(agent.config, self._real, enlarge=enlarge) if render else None
        env = WorldModelEnv(
            model,
            self._real.observation_space,
            self._real.action_space,
            self._start,
            max_steps=step_limit(agent.config, self._real),
            likeliest=likeliest,
            painter=None if self._canvas is None else self._canvas.paint,
            render_mode="rgb_array" if render else None,
        )
        env.np_random = SeedTree(seed).child("dream").generator()
        super().__init__(agent.config, env, self._real)

    def _start(self, generator: np.random.Generator) -> Recording:
        observation, _ = self._real.reset()
        return beginning(np.asarray(observation, self._real.observation_space.dtype), self._real.action_space)

    @property
    def place(self) -> str:
        """Where this is."""
        return "in the world model"

    def close(self) -> None:
        """Free the environments behind it."""
        self._real.close()
        if self._canvas is not None:
            self._canvas.close()
