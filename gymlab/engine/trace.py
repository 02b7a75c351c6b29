"""An episode seen step by step: what the agent saw, what it thought of it, what it did and what came of it.

    for step in play_episodes(agent, seed=7, deterministic=False, steps=200):
        print(step.step, step.label, step.probabilities, step.value, step.reward)

Whatever the algorithm: everything comes from `Workflow.act` and its extras, so a column is empty where they have nothing. The same seed plays the
same episodes and, for a stochastic policy, draws the same actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from gymlab.components.observation import ObservationEncoder, RewardNormalizer
from gymlab.components.returns import gae, reward_to_go
from gymlab.engine.secrets import take_secrets
from gymlab.engine.seeding import SeedTree
from gymlab.engine.setup import episode_capped
from gymlab.envs.build import make_env
from gymlab.envs.labels import action_labels
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.config.schema import Config
    from gymlab.engine.agent import Agent
    from gymlab.envs.subenv import SubEnv

PURPOSE = "play"
"""The stream of seeds that `Agent.make_env` plays on too."""
MOST_INFO = 32
"""Entries of an info that are kept."""
LONGEST_TEXT = 200
"""Characters of a text in an info that are kept."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step: the agent looks at `observation` and `frame`, acts, and gets `reward`.

    Columns that the algorithm does not tell are None.
    """

    index: int
    """Steps before this one, over all episodes."""
    episode: int
    step: int
    """Steps before this one in its episode."""
    observation: np.ndarray
    """As the environment gives it to the agent, after all wrappers."""
    processed: np.ndarray
    """As the network takes it: encoded and normalised."""
    frame: np.ndarray | None
    """The picture of the state acted in; None without rendering."""
    action: Any
    """As the environment took it: an int, or an array."""
    label: str | None
    """What the environment's file calls the action."""
    probabilities: np.ndarray | None
    """Of each choice, one after the other where there are several."""
    mean: np.ndarray | None
    """Of a continuous action."""
    std: np.ndarray | None
    value: float | None
    """What the agent expects from here on, discounted, in the reward that it learned on."""
    greedy: bool | None
    """Whether the action is the likeliest one; None for continuous actions."""
    reward: float
    """The environment's own."""
    shaped_reward: float
    """What wrappers made of it."""
    terminated: bool
    truncated: bool
    info: dict[str, int | float | str | bool] = field(default_factory=dict)
    """What the environment told after the step, numbers and texts only."""
    final_observation: np.ndarray | None = None
    """The state that an episode ended in."""
    final_frame: np.ndarray | None = None
    next_value: float | None = None
    """Value of the state after the step, where an episode was cut off there."""

    @property
    def ended(self) -> bool:
        """Whether the episode ended with this step."""
        return self.terminated or self.truncated


def play_environment(
    config: Config, *, seed: int = 0, render: bool = False, tap: Callable[[gym.Env], gym.Env] | None = None
) -> SubEnv:
    """One environment to look at, stepped in this process, with the episodes that `Agent.make_env` has for the seed."""
    take_secrets(config)
    mode = "rgb_array" if render else None
    return make_env(episode_capped(config), seeds=SeedTree(seed), purpose=PURPOSE, render_mode=mode, tap=tap)


class Player:
    """An agent in one environment of its own, made from its config; use it as a context manager.

    The environment is stepped in this process whatever the run's backend, so that rendering, the last picture of an episode and the
    environment's own reward can be had, and the same seed means the same episodes with and without rendering.
    """

    def __init__(self, agent: Agent, *, seed: int = 0, deterministic: bool = True, render: bool = True) -> None:
        self.agent = agent
        self.deterministic = deterministic
        self.render = render
        self.env = play_environment(agent.config, seed=seed, render=render)
        agent.check_spaces(self.env.raw_observation_space, self.env.action_space)
        self.fps = float(self.env.metadata.get("render_fps") or 30.0)
        self.labels = discrete_labels(self.env, agent.config)
        self._encoder = next((m for m in agent.workflow.modules.values() if isinstance(m, ObservationEncoder)), None)
        agent.reset()
        agent.seed(seed)

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *exception: object) -> None:
        self.env.close()

    def play(self, steps: int | None = None, episodes: int | None = None) -> Iterator[TraceStep]:
        """Steps until so many steps or whole episodes are over, whichever is first; one episode if neither is given."""
        if steps is None and episodes is None:
            episodes = 1
        workflow = self.agent.workflow
        index = 0
        for episode in range(episodes if episodes is not None else steps or 0):
            observation, info = self._begin()
            state = workflow.initial_state(1)
            frame, taken, ended = self._frame(), 0, False
            while not ended and (steps is None or index < steps):
                mask = _mask(info)
                action, state, extras = workflow.act(
                    observation[None], state, deterministic=self.deterministic, action_mask=mask
                )
                earned = self.env.env_return
                following, shaped, terminated, truncated, info = self.env.step(self._as_taken(action[0]))
                following = self._stored(following)
                ended = bool(terminated or truncated)
                after = self._frame()
                cut = not terminated and (ended or index + 1 == steps)
                yield TraceStep(
                    index=index,
                    episode=episode,
                    step=taken,
                    observation=observation,
                    processed=self._processed(observation),
                    frame=frame,
                    action=_plain_action(action[0]),
                    label=self._label(action[0]),
                    probabilities=_row(extras, "probabilities"),
                    mean=_row(extras, "mean"),
                    std=_row(extras, "std"),
                    value=_number(extras.get("value")),
                    greedy=self._is_greedy(action[0], _row(extras, "probabilities")),
                    reward=self.env.env_return - earned,
                    shaped_reward=float(shaped),
                    terminated=bool(terminated),
                    truncated=ended and not terminated,
                    info=plain_info(info),
                    final_observation=following if ended else None,
                    final_frame=after if ended else None,
                    next_value=self._value(following, state, _mask(info)) if cut and "value" in extras else None,
                )
                observation, frame = following, after
                index, taken = index + 1, taken + 1
            if steps is not None and index >= steps:
                return

    def _begin(self) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset()
        return self._stored(observation), info

    def _stored(self, observation: Any) -> np.ndarray:
        return np.asarray(observation, dtype=self.env.observation_space.dtype)

    def _processed(self, observation: np.ndarray) -> np.ndarray:
        # A copy: what the encoder gives back may be the observation itself.
        return observation if self._encoder is None else np.array(self._encoder.encode(observation[None])[0])

    def _frame(self) -> np.ndarray | None:
        if not self.render:
            return None
        frame: Any = self.env.render()
        return None if frame is None else np.asarray(frame)

    def _as_taken(self, action: Any) -> Any:
        return int(action) if isinstance(self.env.action_space, gym.spaces.Discrete) else np.array(action)

    def _label(self, action: Any) -> str | None:
        return self.labels.get(int(action)) if isinstance(self.env.action_space, gym.spaces.Discrete) else None

    def _is_greedy(self, action: Any, probabilities: np.ndarray | None) -> bool | None:
        return None if probabilities is None else is_greedy(self.env.action_space, action, probabilities)

    def _value(self, observation: np.ndarray, state: Any, mask: np.ndarray | None) -> float | None:
        """What the agent thinks of a state that it does not act in; its random stream stays where it was."""
        generator = self.agent.workflow.generators.get("act")
        before = generator.bit_generator.state if generator is not None else {}
        _, _, extras = self.agent.workflow.act(observation[None], state, deterministic=True, action_mask=mask)
        if generator is not None:
            generator.bit_generator.state = before
        return _number(extras.get("value"))


def play_episodes(
    agent: Agent,
    *,
    seed: int = 0,
    deterministic: bool = True,
    steps: int | None = None,
    episodes: int | None = None,
    render: bool = True,
) -> Iterator[TraceStep]:
    """Play an agent in its environment and give each step as it is taken."""
    with Player(agent, seed=seed, deterministic=deterministic, render=render) as player:
        yield from player.play(steps, episodes)


@dataclass(frozen=True)
class Outcome:
    """What is known of each step once its episode is over; one entry a step."""

    cumulative_reward: np.ndarray
    """The environment's own reward in the episode so far, this step included."""
    mc_return: np.ndarray
    """Discounted reward from this step to the episode's end, as the agent was shown rewards; rewards alone, no value at a cut."""
    advantage: np.ndarray | None
    """How much better the step was than its value said; None without values."""
    advantage_kind: str
    """`gae` where gamma and lambda are known, else `return - value`; empty without values."""
    gamma: float
    lam: float | None


def outcome(agent: Agent, steps: Sequence[TraceStep]) -> Outcome:
    """Returns and advantages of whole episodes, in the reward that the agent's values are about."""
    hyperparameters = agent.workflow.hyperparameters
    gamma = float(getattr(hyperparameters, "gamma", 1.0))
    lam = getattr(hyperparameters, "gae_lambda", None)
    own = _column([step.reward for step in steps])
    terminated = np.array([step.terminated for step in steps], dtype=bool)[:, None]
    truncated = np.array([step.truncated for step in steps], dtype=bool)[:, None]
    shown = learned_reward(agent, _column([step.shaped_reward for step in steps]))
    endings = (terminated, truncated)
    if not len(steps):
        return Outcome(own[:, 0], own[:, 0], None, "", gamma, lam)
    mc_return = reward_to_go(shown, np.zeros_like(shown), *endings, gamma)[:, 0]
    cumulative = reward_to_go(own[::-1], np.zeros_like(own), *_from_the_end(endings), 1.0)[::-1, 0]
    if any(step.value is None for step in steps):
        return Outcome(cumulative, mc_return, None, "", gamma, lam)
    values = _column([step.value for step in steps])
    following = np.concatenate([values[1:], np.zeros((1, 1))])
    cuts = [(row, step.next_value) for row, step in enumerate(steps) if step.next_value is not None]
    for row, value in cuts:
        following[row] = value
    if lam is not None:
        advantage = gae(shown, values, following, *endings, gamma, float(lam))
        return Outcome(cumulative, mc_return, advantage[:, 0], "gae", gamma, float(lam))
    advantage = reward_to_go(shown, following, *endings, gamma) - values
    return Outcome(cumulative, mc_return, advantage[:, 0], "return - value", gamma, None)


def learned_reward(agent: Agent, rewards: np.ndarray) -> np.ndarray:
    """Rewards in the units of the agent's values: where it learned on normalised ones, by the statistics of its checkpoint."""
    collector = (agent.workflow_state or {}).get("collector") or {}
    saved = collector.get("reward_normalizer")
    if saved is None:
        return rewards
    normalizer = RewardNormalizer(1.0, 1)
    normalizer.set_state(saved)
    return normalizer(rewards, np.zeros(rewards.shape, dtype=bool), update=False).astype(np.float64)


def discrete_labels(env: gym.Env, config: Config) -> dict[int, str]:
    """Names of discrete actions, as the agent chooses among them, or of buttons; those without one are left out."""
    space = env.action_space
    if not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiBinary):
        return {}
    spec = (config.spec.model_extra or {}).get("action_space")
    first = int(space.start) if isinstance(space, gym.spaces.Discrete) else 0
    names = enumerate(action_labels(env, spec if isinstance(spec, dict) else None), first)
    return {action: name for action, name in names if name not in (str(action), f"action {action}")}


def component_names(config: Config, space: str) -> list[str]:
    """Names of the entries of `action_space` or `observation_space`, as the environment's file tells them; empty where it does not."""
    told = (config.spec.model_extra or {}).get(space)
    names = told.get("components") if isinstance(told, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def entry_names(config: Config, count: int) -> list[str]:
    """Names of the `count` numbers of a vector observation, older frames of a stack by their age; empty where not each has one."""
    names, stack = component_names(config, "observation_space"), config.frame_stack
    if len(names) * stack != count:
        return []
    return [f"{name}, {age} before" if age else name for age in reversed(range(stack)) for name in names]


def is_greedy(space: gym.Space, action: Any, probabilities: np.ndarray) -> bool:
    """Whether an action is the likeliest (or one of several that are), of each choice where there are several."""
    if isinstance(space, gym.spaces.Discrete):
        return bool(probabilities[int(action) - int(space.start)] == probabilities.max())
    if isinstance(space, gym.spaces.MultiBinary):
        return bool((np.ravel(action).astype(bool) == (probabilities > 0.5)).all())
    if not isinstance(space, gym.spaces.MultiDiscrete):
        raise GymlabError(f"Probabilities of actions in {space} have no likeliest choice that could be shown.")
    ends = np.cumsum(space.nvec.ravel())
    parts = np.split(probabilities, ends[:-1])
    chosen = (np.ravel(action) - space.start.ravel()).tolist()
    return all(part[choice] == part.max() for part, choice in zip(parts, chosen, strict=True))


def plain_info(info: dict[str, Any]) -> dict[str, int | float | str | bool]:
    """The numbers, truths and texts of an info; arrays and objects are left out."""
    kept: dict[str, int | float | str | bool] = {}
    for key, value in info.items():
        if isinstance(value, np.ndarray | np.generic) and value.size == 1:
            value = value.item()
        if isinstance(value, str):
            kept[str(key)] = value[:LONGEST_TEXT]
        elif isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            kept[str(key)] = value
        if len(kept) == MOST_INFO:
            break
    return kept


def _from_the_end(endings: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Where a sum that runs backwards in time has to begin anew: at the first step of each episode."""
    first = np.ones_like(endings[0])
    first[1:] = (endings[0] | endings[1])[:-1]
    return first[::-1], np.zeros_like(first)


def _column(numbers: Sequence[Any]) -> np.ndarray:
    return np.array(numbers, dtype=np.float64).reshape(-1, 1)


def _mask(info: dict[str, Any]) -> np.ndarray | None:
    mask = info.get("action_mask")
    return None if mask is None else np.asarray(mask, dtype=bool)[None]


def _row(extras: dict[str, np.ndarray], name: str) -> np.ndarray | None:
    found = extras.get(name)
    return None if found is None else np.array(found[0])


def _number(values: np.ndarray | None) -> float | None:
    return None if values is None else float(values[0])


def _plain_action(action: Any) -> Any:
    array = np.array(action)
    return array.item() if array.ndim == 0 else array
