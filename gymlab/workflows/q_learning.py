"""Tabular Q-learning (Watkins 1989): one row a state, one column an action.

    collect   n_steps in N environments; after every vector step, for each environment in order

        Q(s,a) += lr (r + gamma (1 - terminated) max_a' Q(s',a') - Q(s,a))

Learning takes place inside `collect`, since the next action is chosen by the table that this transition has just changed: on-line, as the algorithm
is defined. There is no separate update hook, and no gradient step to count. Many steps to a call keep the engine's own cost per step low.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from gymnasium import spaces
from pydantic import Field, field_validator
from rich.table import Table

from gymlab.components.q_table import QTable
from gymlab.config.effects import ALL_AT_ONCE, NoEffect
from gymlab.config.reads import Reads
from gymlab.config.schedules import share
from gymlab.config.schema import Config, Scalar
from gymlab.engine.workflow import CollectResult, PhaseView, Workflow, register_workflow
from gymlab.envs.step import Episode, Step
from gymlab.errors import ConfigError


class QLearningConfig(Config):
    """What a Q-learning experiment may set."""

    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(("normalize_obs", "normalize_reward"), "a table needs neither"),
        ALL_AT_ONCE,
        NoEffect(("precision",), "the table is one of 64 bit that torch has no part in"),
    )

    n_steps: Annotated[int, Field(ge=1)] = 1000
    """Steps in each environment between two looks at the schedules; one such stretch is an epoch unless epoch_env_steps is given."""
    gamma: Scalar = 0.99
    """Discount of future rewards."""
    policy_lr: Scalar = 0.1
    """Share of the TD error that an entry moves by. Where chance plays a part, let it fall; a deterministic task can take up to 1."""
    epsilon: Scalar = 0.1
    """Share of actions that are drawn at random from all allowed ones in training; evaluation has none."""
    initial_value: float = 0.0
    """Value of entries that were never learned; above what can be reached (optimistic), every action is tried without epsilon."""
    max_states: Annotated[int, Field(ge=1)] = 20_000
    """Most rows of the table: a larger space, or more different observations than this, is an error."""
    grid: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Rows and columns of a world whose states are fields counted row by row: the table is then drawn as a map."""

    _shares = field_validator("gamma", "policy_lr", "epsilon")(share)


@register_workflow("q_learning")
class QLearning(Workflow):
    """The algorithm."""

    Config: ClassVar[type[Config]] = QLearningConfig
    reads: ClassVar[Reads] = Reads(metrics=("opt/q/td_error", "opt/q/visited"))
    one_process: ClassVar[bool] = True
    phases: ClassVar[tuple[dict[str, Any], ...]] = ({"name": "q_learning", "type": "online", "hooks": ["collect"]},)
    config: QLearningConfig
    hyperparameters: Any

    def initialize(self) -> None:
        """The table, and generators for acting and for training apart, so that an evaluation changes no training."""
        context, config = self.context, self.config
        if not isinstance(context.action_space, spaces.Discrete):
            raise ConfigError(
                f"q_learning needs Discrete actions; these are {context.action_space}. Use ppo, or a wrapper that offers a choice of actions."
            )
        if config.normalize_obs != "off" or config.normalize_reward:
            raise ConfigError(
                "normalize_obs, normalize_reward: a table needs neither. Set normalize_obs: off and normalize_reward: false."
            )
        self.first_action = int(context.action_space.start)
        self.table = QTable(
            context.observation_space,
            int(context.action_space.n),
            initial_value=config.initial_value,
            max_states=config.max_states,
        )
        if config.grid is not None and config.grid[0] * config.grid[1] != self.table.index.count:
            raise ConfigError(
                f"grid: {config.grid[0]} x {config.grid[1]} fields are not the {self.table.index.count} states of {context.observation_space}."
            )
        self.modules = {"table": self.table}
        self.generators = {name: context.seeds.child("q_learning", name).generator() for name in ("act", "collect")}
        self.started = False

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, with probabilities and value. Deterministic means greedy; ties are drawn by lot."""
        values = self.table.values(self.table.index.rows(observation))
        epsilon = 0.0 if deterministic else self.hyperparameters.epsilon
        probabilities = self.table.probabilities(values, epsilon, action_mask)
        actions = draw(probabilities, self.generators["act"].random(len(observation)))
        value = (values if action_mask is None else np.where(action_mask, values, -np.inf)).max(axis=1)
        return actions + self.first_action, state, {"probabilities": probabilities, "value": value}

    def collect(self, phase: PhaseView) -> CollectResult:
        """n_steps in each environment, fewer where the budget ends before; each step is learned from before the next is taken."""
        environment, table, hp = self.context.train_environment, self.table, self.hyperparameters
        length = phase.steps(self.config.n_steps, environment.num_envs)
        if not self.started:
            environment.reset()
            self.started = True
        lots = self.generators["collect"].random((length, environment.num_envs))
        episodes: list[Episode] = []
        env_steps, absolute_error = 0, 0.0
        states, mask = table.index.rows(environment.observation, add=True), environment.action_mask
        if mask is not None:
            table.remember_mask(states, mask)
        for t in range(length):
            actions = draw(table.probabilities(table.values(states), hp.epsilon, mask), lots[t])
            step = environment.step(actions + self.first_action)
            next_states, first_states = self._arrivals(step)
            if step.action_mask is not None:
                table.remember_mask(first_states, step.action_mask)
            rows = slice(None) if step.valid is None else step.valid
            absolute_error += table.learn(
                states[rows],
                actions[rows],
                step.reward[rows],
                next_states[rows],
                step.terminated[rows],
                policy_lr=hp.policy_lr,
                gamma=hp.gamma,
                masked=step.action_mask is not None,
            )
            env_steps += environment.num_envs if step.valid is None else int(step.valid.sum())
            episodes += step.episodes
            states, mask = first_states, step.action_mask
        metrics = {"opt/q/td_error": absolute_error / max(1, env_steps), "opt/q/visited": table.visited_share}
        return CollectResult(env_steps=env_steps, vec_steps=length, episodes=tuple(episodes), metrics=metrics)

    def _arrivals(self, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """States [N] that the step led to, and states [N] to act on next: they differ where an episode ended."""
        rows = self.table.index.rows
        to_act_on = rows(step.observation, add=True)
        if step.final_observation is None:
            return to_act_on, to_act_on
        ended = np.flatnonzero(step.ended)
        arrived = to_act_on.copy()
        arrived[ended] = rows(step.final_observation[ended], add=True)
        return arrived, to_act_on

    def get_state(self) -> dict[str, Any]:
        """Random generators, and whether the environments have begun."""
        generators = self.random_states()
        return {"generators": generators, "started": self.started}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.set_random_states(state["generators"])
        self.started = state["started"]

    def describe(self) -> dict[str, Any]:
        """Derived numbers: size of the table, steps of an epoch, horizon of the discount."""
        states, actions = self.table.q.shape
        gamma = self.hyperparameters.gamma
        return {
            "table_states": states,
            "table_actions": actions,
            "table_memory_bytes": sum(buffer.nbytes for buffer in self.table.buffers()),
            "env_steps_per_collect": self.config.n_envs * self.config.n_steps,
            "horizon_steps": round(1 / (1 - gamma)) if gamma < 1 else "endless",
        }

    def print_table(self, *, most: int = 64) -> Table:
        """The table for rich's `print`, at most `most` states."""
        return self.table.text(self._labels, most=most)

    def draw_table(self, path: str | Path) -> Path:
        """The table as a picture: a map with arrows where `grid` is set, else states by actions."""
        return self.table.draw(path, grid=self.config.grid, labels=self._labels, title=self.config.env_id)

    def pictures(self) -> dict[str, Callable[[Path], Path]]:
        """The table."""
        return {"Q table": self.draw_table}

    @property
    def _labels(self) -> dict[int, str]:
        """Names of actions as the environment's file tells them; JSON has made their numbers text."""
        labels = (self.config.spec.model_extra or {}).get("action_space", {}).get("labels", {})
        return {int(action) - self.first_action: str(name) for action, name in labels.items()}


def draw(probabilities: np.ndarray, lots: np.ndarray) -> np.ndarray:
    """[B, A] probabilities and [B] uniform numbers in [0, 1) -> [B] columns, never one of probability 0."""
    cumulative = probabilities.cumsum(axis=1)
    # The last sum may be a rounding error below 1: the lot is taken as a share of it.
    columns: np.ndarray = (cumulative > lots[:, None] * cumulative[:, -1:]).argmax(axis=1)
    return columns
