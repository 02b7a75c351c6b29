"""Multi-armed bandits: one of them and a few named ones, single and native."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.families import Family, register_family
from gymlab.envs.native import NativeVector, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

BANDITS: dict[str, dict[str, Any]] = {
    "Bandit-v0": {},
    "Bandit/two-arms": {"n_arms": 2, "means": [0.0, 1.0]},
    "Bandit/close": {"n_arms": 5, "means": [0.8, 0.85, 0.9, 0.95, 1.0], "stds": 0.1},
    "Bandit/noisy": {"n_arms": 10, "stds": 5.0},
    "Bandit/long": {"n_arms": 10, "episode_length": 100},
}
"""Arguments of each bandit; `env_kwargs` win over them."""


class BanditArms:
    """The arms of a bandit: means and deviations of their rewards, checked."""

    def __init__(
        self,
        n_arms: int = 10,
        means: Sequence[float] | None = None,
        stds: float | Sequence[float] = 1.0,
        episode_length: int = 1,
    ) -> None:
        if n_arms < 2:
            raise ConfigError(f"A bandit needs n_arms >= 2, not {n_arms}.")
        if episode_length < 1:
            raise ConfigError(f"A bandit needs episode_length >= 1, not {episode_length}.")
        self.count = n_arms
        self.means = np.linspace(0, n_arms - 1, n_arms) if means is None else np.array(means, dtype=np.float64)
        self.stds = np.full(n_arms, stds) if np.isscalar(stds) else np.array(stds, dtype=np.float64)
        self.episode_length = episode_length
        for name, values in (("means", self.means), ("stds", self.stds)):
            if values.shape != (n_arms,):
                raise ConfigError(f"A bandit with {n_arms} arms needs {n_arms} {name}, not {len(values)}.")
        if (self.stds < 0).any():
            raise ConfigError(f"A bandit's stds are deviations and cannot be negative: {self.stds.tolist()}.")
        self.best = int(self.means.argmax())

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Always zeros: a bandit shows nothing."""
        return gym.spaces.Box(0.0, 0.0, (self.count,), np.float32)

    def picture(self, chosen: int | None) -> np.ndarray:
        """Arms as bars from 0 to their mean, the best one green, the chosen one with a dark frame."""
        height, width = 240, 400
        frame = np.full((height, width, 3), 255, dtype=np.uint8)
        low, high = min(0.0, float(self.means.min())), max(0.0, float(self.means.max()))
        scale = (height - 40) / max(high - low, 1e-9)
        base = height - 20 + round(low * scale)
        slot = width / self.count
        for arm, mean in enumerate(self.means):
            left, right = round(arm * slot + slot * 0.15), round((arm + 1) * slot - slot * 0.15)
            top, bottom = sorted((base - round(float(mean) * scale), base))
            bottom = max(bottom, top + 2)
            if arm == chosen:
                frame[max(0, top - 4) : bottom + 4, max(0, left - 4) : right + 4] = (40, 40, 40)
            frame[top:bottom, left:right] = (60, 160, 90) if arm == self.best else (120, 150, 210)
        frame[base, :] = (0, 0, 0)
        return frame


class BanditEnv(gym.Env):
    """One bandit. An episode is `episode_length` pulls and then terminates: the length is part of the task."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        n_arms: int = 10,
        means: Sequence[float] | None = None,
        stds: float | Sequence[float] = 1.0,
        episode_length: int = 1,
        seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.arms = BanditArms(n_arms, means, stds, episode_length)
        self.observation_space = self.arms.observation_space
        self.action_space = gym.spaces.Discrete(n_arms)
        self.render_mode = render_mode
        self._pulls = 0
        self._chosen: int | None = None
        if seed is not None:
            self.np_random, _ = gym.utils.seeding.np_random(seed)

    def _observation(self) -> np.ndarray:
        return np.zeros(self.arms.count, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; info tells the arms."""
        super().reset(seed=seed)
        self._pulls = 0
        self._chosen = None
        arms = self.arms
        return self._observation(), {"n_arms": arms.count, "means": arms.means.copy(), "stds": arms.stds.copy()}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Pull an arm: the reward is drawn from N(mean, std)."""
        arms, chosen = self.arms, int(action)
        reward = float(self.np_random.normal(arms.means[chosen], arms.stds[chosen]))
        self._pulls += 1
        self._chosen = chosen
        info = {
            "chosen_arm": chosen,
            "optimal_arm": arms.best,
            "optimal_mean": float(arms.means[arms.best]),
            "is_success": chosen == arms.best,
        }
        return self._observation(), reward, self._pulls >= arms.episode_length, False, info

    def render(self) -> Any:
        """The arms as bars."""
        return self.arms.picture(self._chosen) if self.render_mode == "rgb_array" else None


@register_native(*BANDITS)
class BanditVector(NativeVector):
    """Bandits side by side: all pulls of a step are one draw."""

    options: ClassVar[frozenset[str]] = frozenset({"n_arms", "means", "stds", "episode_length", "seed"})

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        render_mode: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.arms = BanditArms(**kwargs)
        super().__init__(
            spec,
            num_envs,
            seeds,
            purpose,
            observation_space=self.arms.observation_space,
            action_space=gym.spaces.Discrete(self.arms.count),
            render_mode=render_mode,
        )
        self.render_fps = 10.0
        self._chosen = np.zeros(num_envs, dtype=np.int64)
        self._optimal = np.full(num_envs, self.arms.best)
        self._optimal_mean = np.full(num_envs, self.arms.means[self.arms.best])

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"chosen": self._chosen}

    def _begin(self, indices: np.ndarray) -> None:
        """A bandit begins as it always is."""

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        noise = self._generator.standard_normal(self.num_envs)
        try:
            reward[...] = self.arms.means[actions] + self.arms.stds[actions] * noise
        except IndexError as error:
            raise EnvironmentFailure(f"{self.spec.id} has arms 0 to {self.arms.count - 1}, not {actions!r}.") from error
        np.greater_equal(self._clock - self._started, self.arms.episode_length, out=terminated)
        self._chosen[...] = actions
        return {
            "chosen_arm": self._chosen.copy(),
            "optimal_arm": self._optimal,
            "optimal_mean": self._optimal_mean,
        }

    def _succeeded(self, ended: np.ndarray) -> np.ndarray | None:
        return self._chosen[ended] == self.arms.best

    def _observe(self, turn: int) -> None:
        self._slots[turn].observation.fill(0.0)

    def render(self) -> np.ndarray | None:
        """Environment 0 as bars."""
        if self.render_mode is None:
            return None
        return self.arms.picture(int(self._chosen[0]))

    def close(self) -> None:
        """Nothing is open."""


class BanditFamily(Family):
    """`Bandit-v0` and the named bandits `Bandit/<name>`."""

    name: ClassVar[str] = "bandits"
    prefixes: ClassVar[tuple[str, ...]] = ("Bandit-", "Bandit/")

    def resolve(self, env_id: str) -> str:
        """A bandit that is known by that name."""
        if env_id in BANDITS:
            return env_id
        raise EnvironmentFailure(
            f"Unknown bandit {env_id!r}. {did_you_mean(env_id, BANDITS)} Known: {', '.join(BANDITS)}. "
            "Bandit-v0 takes any arms by env_kwargs: n_arms, means, stds, episode_length."
        )

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The bandit's own arguments under those of the config."""
        for name in env_kwargs:
            if name not in BanditVector.options:
                known = ", ".join(sorted(BanditVector.options))
                hint = did_you_mean(name, BanditVector.options)
                raise ConfigError(f"env_kwargs of {env_id}: unknown argument {name!r}. {hint} Known: {known}.")
        return {**BANDITS[env_id], **env_kwargs}

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """Solved is the mean of the best arm over all pulls of an episode; episodes terminate by themselves."""
        arms = BanditArms(**{key: value for key, value in env_kwargs.items() if key != "seed"})
        return EnvironmentSpec(env_id, float(arms.means.max()) * arms.episode_length, None)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One bandit."""
        return BanditEnv(**env_kwargs, render_mode=render_mode)

    def ids(self) -> Iterable[str]:
        """Bandit-v0 and the named ones."""
        return list(BANDITS)


register_family(BanditFamily())
