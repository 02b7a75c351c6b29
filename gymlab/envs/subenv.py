"""One environment of a vector: seeded for each episode, counted on its own reward, able to replay itself.

The stack, from the inside:

    environment -> EpisodeRecorder (own reward, time limit) -> frame skip -> pixels -> wrappers of the config
                -> image (gray, size, channels first) -> frame stack -> SubEnv (seeds, replay, flattening)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.contract import (
    ObservationCheck,
    WrongAnswer,
    call_reset,
    check_mask,
    contained,
    layers,
    reset_answer,
    step_answer,
    success_of,
)
from gymlab.envs.crash import method_place
from gymlab.envs.recording import Film, recorder
from gymlab.envs.spaces import Flattener, stored_space
from gymlab.envs.step import Episode
from gymlab.envs.vector import EnvironmentSpec, Seeds, is_image_space
from gymlab.errors import EnvironmentFailure, GymlabError

UNREGISTERED = EnvironmentSpec("unregistered")
"""An environment of which nothing is known but what it does."""


class NotRepeated(EnvironmentFailure):
    """A saved episode cannot be brought back by playing it again."""


class EpisodeRecorder(gym.Wrapper):
    """Sits right above the environment: sums its own reward, below any shaping, and applies the time limit."""

    def __init__(self, env: gym.Env, max_episode_steps: int | None) -> None:
        super().__init__(env)
        self.env_return = 0.0
        self.steps = 0
        self._limit = max_episode_steps
        self._inner_repeat: Callable[[Any, int], tuple[Any, ...]] | None = getattr(env, "repeat", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with empty sums."""
        self.env_return = 0.0
        self.steps = 0
        return reset_answer(call_reset(self.env, seed, options))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and count; the time limit truncates."""
        observation, reward, terminated, truncated, info = step_answer(self.env.step(action))
        self.env_return += float(reward)
        self.steps += 1
        if self.steps == self._limit:
            truncated = True
        return observation, reward, terminated, truncated, info

    def repeat(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action `count` times or until the episode ends, and sum the rewards.

        An environment that is quicker when it repeats by itself (an emulator need not draw what nobody sees) offers
        `repeat(action, count)`, which gives what `step` gives and the number of steps taken.
        """
        if self._inner_repeat is not None:
            most = count if self._limit is None else min(count, self._limit - self.steps)
            *answer, taken = self._inner_repeat(action, most)
            observation, reward, terminated, truncated, info = step_answer(answer)
            self.env_return += float(reward)
            self.steps += taken
            return observation, float(reward), terminated, truncated or self.steps == self._limit, info
        total = 0.0
        for _ in range(count):
            observation, reward, terminated, truncated, info = self.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class SubEnv(gym.Wrapper):
    """The outermost wrapper. Episode k is reset with the seed `seeds.child(purpose, env_index, k)`.

    What comes out was held to the contract: an observation of the space's shape, a number, two truth values and a dict.
    Nothing else runs code of the environment than `reset`, `step`, `render` and `close`.

    What a checkpoint needs is the number of the unfinished episode and its actions: the episode is reset with its seed
    and replayed, and wrappers with a state of their own follow from the replay. A wrapper whose state outlives an
    episode offers `get_state` and `set_state`.
    """

    def __init__(
        self,
        env: gym.Env,
        recorder: EpisodeRecorder,
        *,
        seeds: Seeds | None,
        purpose: str,
        env_index: int,
        registered: EnvironmentSpec = UNREGISTERED,
    ) -> None:
        super().__init__(env)
        self._registered = registered
        self.env_index = env_index
        self.raw_observation_space = env.observation_space
        self.observation_space = stored_space(env.observation_space)
        flattener = Flattener(env.observation_space)
        self._stored: Callable[[Any], Any] = (
            ObservationCheck(env.observation_space).taken if flattener.is_identity else flattener
        )
        self._recorder = recorder
        self._is_wrapped = env is not recorder
        self._seeds = seeds
        self._purpose = purpose
        self._actions: list[Any] = []
        self._inner_step = env.step
        self._episode_metrics: Callable[[], dict[str, float] | None] = getattr(
            env.unwrapped, "episode_metrics", lambda: None
        )
        # An emulator skips frames by itself; the recorder above it counts whole steps.
        self._frames_played: Callable[[], int] = getattr(env.unwrapped, "frames_played", lambda: recorder.steps)
        self._keepers = [layer for layer in layers(env) if hasattr(layer, "get_state") and hasattr(layer, "set_state")]
        self._success: bool | None = None
        self._told: dict[str, float] | None = None
        self.episode_index = -1
        self.episodes_finished = 0
        self.env_return = 0.0
        """Sum of the environment's own reward in the open episode, after its newest whole step."""
        self.shaped_return = 0.0
        self.length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode with its own seed; a `seed` given wins only where no seed tree was."""
        self.episode_index += 1
        return self._begin(seed, options)

    def _begin(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._seeds is not None:
            seed = self._seeds.child(self._purpose, self.env_index, self.episode_index).integer()
        self._actions.clear()
        self.env_return = 0.0
        self.shaped_return = 0.0
        self.length = 0
        try:
            with contained():
                observation, info = reset_answer(call_reset(self.env, seed, options))
            if "action_mask" in info:
                check_mask(info["action_mask"], self.action_space)
            return self._stored(observation), info
        except WrongAnswer as error:
            raise error.at(f"{self._method('reset')}{self.place}, reset: ") from None
        except GymlabError as error:
            error.args = (f"{self.place}, reset: {error}",)
            raise

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one action and remember it for a replay."""
        try:
            answer = self._inner_step(action)
            observation, reward, terminated, truncated, info = step_answer(answer) if self._is_wrapped else answer
            observation = self._stored(observation)
            if info and "action_mask" in info:
                check_mask(info["action_mask"], self.action_space)
            if terminated or truncated:
                self._success = success_of(info)
                self._told = self._episode_metrics()
        except WrongAnswer as error:
            raise error.at(f"{self._method('step')}{self.place}, step {self.length + 1}: ") from None
        except GymlabError as error:
            error.args = (f"{self.place}, step {self.length + 1}: {error}",)
            raise
        except Exception:
            raise
        except BaseException:
            with contained():
                raise
        self._actions.append(action)
        self.env_return = self._recorder.env_return
        self.shaped_return += float(reward)
        self.length += 1
        return observation, reward, terminated, truncated, info

    @property
    def place(self) -> str:
        """What the environment and its episode are called in messages."""
        return f"{self._registered.id}: {self._purpose} environment {self.env_index}, episode {self.episode_index}"

    def _method(self, name: str) -> str:
        """Where the method is written that gave a wrong answer; nothing where it may be one of several."""
        place = method_place(layers(self.env), name)
        return f"{place}: " if place else ""

    def finish(self, terminated: bool) -> Episode:
        """The episode that has just ended, with what its last step told."""
        self.episodes_finished += 1
        return Episode(
            self.env_index,
            self.episode_index,
            self.env_return,
            self.shaped_return,
            self.length,
            terminated,
            self._success,
            told=self._told,
            frames=self._frames_played(),
        )

    def render(self) -> Any:
        """A picture, where the environment was made with rendering."""
        try:
            with contained():
                return self.env.render()
        except NotImplementedError:
            raise EnvironmentFailure(
                f"{self._registered.id} has no `render`. Give pictures there as arrays [height, width, 3] of uint8, take `render_mode` "
                'in `__init__`, and name it: `metadata = {"render_modes": ["rgb_array"]}`.'
            ) from None

    def close(self) -> None:
        """Free what the environment holds."""
        with contained():
            self.env.close()

    def get_return_threshold(self) -> float | None:
        """Mean return that counts as solved, as the environment was registered."""
        return self._registered.reward_threshold

    def get_max_episode_steps(self) -> int | None:
        """Time limit in the environment's own steps."""
        return self._registered.max_episode_steps

    def is_rgb_env(self) -> bool:
        """Whether observations are images."""
        return is_image_space(self.observation_space)

    def recorder(self, film: Film) -> AbstractContextManager[None]:
        """Film the environment while it is stepped; it must have been made with rendering."""
        return recorder(self, film)

    def abandon(self) -> Episode:
        """The open episode as far as it came before the environment failed."""
        self.episodes_finished += 1
        return Episode(
            self.env_index, self.episode_index, self.env_return, self.shaped_return, self.length, False, broken=True
        )

    def succeed(self, failed: SubEnv) -> None:
        """Take the place of a failed environment: the next episode is the one after its last."""
        self.number_from(failed._seeds, failed.episode_index, failed.episodes_finished)
        for keeper, old in zip(self._keepers, failed._keepers, strict=True):
            keeper.set_state(old.get_state())

    def number_from(self, seeds: Seeds | None, episode_index: int = -1, episodes_finished: int = 0) -> None:
        """Go on after episode `episode_index` of a tree of seeds; from its beginning unless told."""
        self._seeds = seeds
        self.episode_index = episode_index
        self.episodes_finished = episodes_finished

    def get_state(self) -> dict[str, Any]:
        """Which episode is open, its actions so far, and the state of wrappers that outlive an episode."""
        return {
            "episode_index": self.episode_index,
            "episodes_finished": self.episodes_finished,
            "shaped_return": self.shaped_return,
            "actions": np.asarray(self._actions),
            "wrappers": {str(depth): keeper.get_state() for depth, keeper in enumerate(self._keepers)},
        }

    def replay(
        self, state: dict[str, Any], after_step: Callable[[], None] = lambda: None
    ) -> tuple[Any, dict[str, Any]]:
        """Play the open episode again up to where it was; returns its newest observation and info."""
        self.episode_index = int(state["episode_index"])
        self.episodes_finished = int(state["episodes_finished"])
        if "actions" not in state:
            raise NotRepeated(
                f"Environment {self.env_index} had failed in episode {self.episode_index} when it was saved."
            )
        observation, info = self._begin()
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        actions = np.asarray(state["actions"])
        for position, action in enumerate(actions.tolist() if discrete else actions):
            observation, _, terminated, truncated, info = self.step(action)
            after_step()
            if terminated or truncated:
                raise NotRepeated(
                    f"The replay of episode {self.episode_index} of environment {self.env_index} ended at step "
                    f"{position + 1} of {len(actions)}: the environment does not repeat itself from the same seed."
                )
        # Shaping may depend on what wrappers had seen before, so its sum is taken from the state, not from the replay.
        self.shaped_return = float(state["shaped_return"])
        return observation, info

    def restore_wrappers(self, state: dict[str, Any]) -> None:
        """Give wrappers their state back: after all environments have replayed, since some share theirs."""
        for depth, keeper in enumerate(self._keepers if "wrappers" in state else ()):
            keeper.set_state(state["wrappers"][str(depth)])
