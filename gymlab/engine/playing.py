"""One environment played for somebody to look at: by an agent, at random, or by hand.

The environment is the one of the agent's config with all its wrappers, stepped in this process. The same seed plays the
same episodes as `Agent.make_env` and the traces of `engine/trace.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import gymnasium as gym
import numpy as np

from gymlab.engine.seeding import SeedTree
from gymlab.engine.trace import play_environment
from gymlab.envs.labels import action_labels, action_text
from gymlab.envs.tap import OwnSteps
from gymlab.errors import EnvironmentFailure

if TYPE_CHECKING:
    from gymlab.config.schema import Config
    from gymlab.engine.agent import Agent
    from gymlab.engine.evaluation import Limits
    from gymlab.envs.subenv import SubEnv

LEFT = "left"
"""How an episode ended that somebody left before its end."""
UNFINISHED = "unfinished"
"""How an episode ended that was given up."""


@dataclass(frozen=True)
class Decision:
    """What is to be done, and what the player thinks of it."""

    action: Any
    value: float | None = None
    probabilities: np.ndarray | None = None


class Policy(Protocol):
    """Somebody who decides by themselves."""

    def begin(self) -> None:
        """A new episode."""

    def decide(self, observation: np.ndarray, mask: np.ndarray | None) -> Decision:
        """What to do now."""


class AgentPolicy:
    """A trained agent."""

    def __init__(self, agent: Agent, *, seed: int, deterministic: bool) -> None:
        self.agent = agent
        self.deterministic = deterministic
        agent.seed(seed)

    def begin(self) -> None:
        """Forget the last episode."""
        self.agent.reset()

    def decide(self, observation: np.ndarray, mask: np.ndarray | None) -> Decision:
        """The agent's action, with the value and the probabilities where the algorithm has them."""
        action = self.agent.act(observation, deterministic=self.deterministic, action_mask=mask)
        extras = self.agent.extras
        value, probabilities = extras.get("value"), extras.get("probabilities")
        return Decision(
            action,
            None if value is None else float(value[0]),
            None if probabilities is None else np.array(probabilities[0]),
        )


class RandomPolicy:
    """Any allowed action, each as likely as the others."""

    def __init__(self, space: gym.Space, *, seed: int) -> None:
        self.space = space
        space.seed(SeedTree(seed).child("random actions").integer() % 2**31)

    def begin(self) -> None:
        """Nothing is remembered."""

    def decide(self, observation: np.ndarray, mask: np.ndarray | None) -> Decision:
        """A sample of the action space."""
        if mask is None or not isinstance(self.space, gym.spaces.Discrete):
            return Decision(self.space.sample())
        return Decision(self.space.sample(mask=mask.astype(np.int8)))


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode that is over."""

    number: int
    env_return: float
    """Sum of the environment's own reward."""
    length: int
    ending: str
    """terminated, truncated, left by whoever played, or unfinished: given up at a limit."""
    success: bool | None = None


class Playing:
    """Something in play. Somebody calls `begin`, then `step` until `ending` is set, then `begin` again."""

    browses = False
    """Whether what is played was recorded, and one can go back in it."""

    def __init__(self, config: Config, env: gym.Env[Any, Any], named: gym.Env[Any, Any]) -> None:
        """Play in `env`; actions are called and pictures timed as in `named`, the environment of the config."""
        self.config = config
        self.env = env
        self.fps = float(named.metadata.get("render_fps") or 30.0)
        spec = (config.spec.model_extra or {}).get("action_space")
        self.labels = action_labels(named, spec if isinstance(spec, dict) else None)
        self.policy: Policy | None = None
        """Who decides; None: whoever calls `step` with an action."""
        self.finished: list[PlayedEpisode] = []
        self.episode = 0
        """Number of the episode, from 1."""
        self._clear()

    def _clear(self) -> None:
        self.steps = 0
        self.reward: float | None = None
        """The environment's own reward of the newest step."""
        self.action: Any = None
        """The newest action taken."""
        self.ending: str | None = None
        self.decision: Decision | None = None
        """What the policy is going to do next."""
        self._earned = 0.0

    @property
    def by_hand(self) -> bool:
        """Whether each step needs an action of whoever plays."""
        return self.policy is None

    @property
    def place(self) -> str:
        """What is played in, where it is not the environment itself."""
        return ""

    @property
    def env_return(self) -> float:
        """Sum of the environment's own reward in the episode so far."""
        return self._earned

    def begin(self) -> None:
        """The next episode; one that is not over counts as left, if anything was done in it."""
        self.leave()
        self._clear()
        self.episode += 1
        if self.policy is not None:
            self.policy.begin()
        self.observation, self.info = self.env.reset()
        self._decide()

    def leave(self) -> None:
        """Give up the episode that is open, if anything was done in it."""
        if self.steps and self.ending is None:
            self._finish(LEFT)

    def step(self, action: Any = None) -> None:
        """Do what the policy has decided, or what is given."""
        if action is None:
            if self.decision is None:
                raise ValueError("nobody has decided what to do")
            action = self.decision.action
        taken = int(action) if isinstance(self.env.action_space, gym.spaces.Discrete) else np.array(action)
        self.observation, reward, terminated, truncated, self.info = self.env.step(taken)
        self.reward, self.action = self._own_reward(float(reward)), taken
        self._earned += self.reward
        self.steps += 1
        if terminated or truncated:
            self._finish("terminated" if terminated else "truncated")
        else:
            self._decide()

    def _own_reward(self, shown: float) -> float:
        """The environment's own reward of the step, where `shown` is what wrappers made of it."""
        return shown

    def _decide(self) -> None:
        if self.policy is not None:
            mask = self.info.get("action_mask")
            observation = np.asarray(self.observation, dtype=self.env.observation_space.dtype)
            self.decision = self.policy.decide(observation, None if mask is None else np.asarray(mask, dtype=bool))

    def _finish(self, ending: str) -> None:
        self.ending, self.decision = ending, None
        success = self.info.get("is_success") if ending not in (LEFT, UNFINISHED) else None
        self.finished.append(
            PlayedEpisode(self.episode, self.env_return, self.steps, ending, None if success is None else bool(success))
        )

    def text_of(self, action: Any) -> str:
        """An action in words."""
        return action_text(action, self.labels, self.env.action_space)

    def frame(self) -> np.ndarray:
        """What the environment draws, [height, width, 3]."""
        drawn: Any = self.env.render()
        picture = None if drawn is None else np.asarray(drawn)
        if picture is None or picture.ndim != 3 or picture.dtype != np.uint8:
            raise EnvironmentFailure(f"{self.config.env_id} draws no pictures. --headless plays it without.")
        return picture

    def play(self, episodes: int, limits: Limits | None = None) -> Iterator[None]:
        """Play whole episodes by the policy, and give word after each reset and each step.

        An episode that passes the limit of steps is given up, and all that is left at the limit of time.
        """
        deadline = math.inf if limits is None or limits.seconds is None else time.monotonic() + limits.seconds
        most = math.inf if limits is None else limits.steps
        for _ in range(episodes):
            self.begin()
            yield
            while self.ending is None:
                self.step()
                if self.ending is None and (self.steps >= most or time.monotonic() > deadline):
                    self._finish(UNFINISHED)
                yield
            if time.monotonic() > deadline:
                break

    def close(self) -> None:
        """Free the environment."""
        self.env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Game(Playing):
    """The environment of a config, with all its wrappers."""

    env: SubEnv

    def __init__(self, config: Config, *, seed: int, render: bool, agent: Agent | None = None) -> None:
        """Make the environment; for an `agent` that is to play it must be as the one that the agent was trained on."""
        env = play_environment(config, seed=seed, render=render, tap=self._listen)
        super().__init__(config, env, env)
        if agent is not None:
            agent.check_spaces(env.raw_observation_space, env.action_space)

    def _listen(self, env: gym.Env) -> gym.Env:
        self.own = OwnSteps(env)
        return self.own

    def _own_reward(self, shown: float) -> float:
        return self.own.take_reward()

    @property
    def env_return(self) -> float:
        """Sum of the environment's own reward in the episode so far."""
        return self.env.env_return


def likeliest(probabilities: np.ndarray, count: int) -> list[tuple[int, float]]:
    """The most probable choices in their own order; those left out are less likely than each of these."""
    chosen = sorted(np.argsort(-probabilities, kind="stable")[:count].tolist())
    return [(index, float(probabilities[index])) for index in chosen if math.isfinite(probabilities[index])]
