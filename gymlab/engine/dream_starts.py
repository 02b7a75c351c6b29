"""Where dreams begin: at resets of the real environment, or anywhere in episodes that were saved.

env = make_dream(agent)                                     # a Gymnasium environment: the agent's world model
env = make_dream(agent, from_episodes(saved_episodes(run, agent), agent.action_space))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import Space

from gymlab.engine.dream_game import beginning, step_limit, world_model_of
from gymlab.engine.secrets import take_secrets
from gymlab.engine.setup import episode_capped
from gymlab.engine.workflow import Recording
from gymlab.envs.build import make_env
from gymlab.envs.world_model_env import Starts, WorldModelEnv
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent
    from gymlab.engine.saved_episodes import EpisodeEntry
    from gymlab.envs.subenv import SubEnv


def from_resets(real: SubEnv) -> Starts:
    """First observations of an environment that was made without a tree of seeds, each reset with a seed of the generator's."""

    def starts(generator: np.random.Generator) -> Recording:
        observation, _ = real.reset(seed=int(generator.integers(2**31)))
        return beginning(np.asarray(observation, real.observation_space.dtype), real.action_space)

    return starts


def from_episodes(entries: Sequence[EpisodeEntry], actions: Space) -> Starts:
    """Any step of any of these episodes, each episode and then each step as likely as the others; the dream has seen what was before."""
    known = [entry for entry in entries if entry.source != "video"]
    if not known:
        raise GymlabError("There is no saved episode whose observations are known: a dream cannot begin in one.")

    def starts(generator: np.random.Generator) -> Recording:
        episode = known[int(generator.integers(len(known)))].load()
        assert episode.observations is not None
        assert episode.actions is not None
        step = int(generator.integers(episode.steps + 1))
        last = beginning(episode.observations[step], actions)
        taken = np.concatenate([episode.actions[:step], last.actions.astype(episode.actions.dtype)])
        return Recording(episode.observations[: step + 1], taken, np.arange(step + 1) == 0)

    return starts


def make_dream(agent: Agent, starts: Starts | None = None, *, likeliest: bool = False) -> WorldModelEnv:
    """The world model of an agent as a Gymnasium environment, to train or test any agent in; it begins at resets unless told otherwise."""
    take_secrets(agent.config)
    real = make_env(episode_capped(agent.config))
    return WorldModelEnv(
        world_model_of(agent),
        real.observation_space,
        real.action_space,
        from_resets(real) if starts is None else starts,
        max_steps=step_limit(agent.config, real),
        likeliest=likeliest,
        behind=real,
    )
