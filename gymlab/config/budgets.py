"""Budgets: what an experiment without one is given, and whole steps of its environments.

An experiment that names no end would train until somebody stops it, and one that says nothing about evaluation would never be
judged on the way. Both get a default that is said before anything else; an explicit `null` stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel

from gymlab.config.environment_ids import family_of, kind_of
from gymlab.config.field_types import default_of
from gymlab.config.schema import Config, Phase
from gymlab.config.yaml_reader import Located


class Default(NamedTuple):
    """What an experiment on environments of one kind is given where nothing is said."""

    on_policy: int
    """Env steps of PPO, REINFORCE and algorithms that this table does not name."""
    replay: int
    """Env steps of those that learn each step many times: Dreamer, TD-MPC, Δ-IRIS."""
    episodes: int
    """Episodes of an evaluation."""


DEFAULTS: dict[str, Default] = {
    "bandits": Default(20_000, 20_000, 100),
    "toy text": Default(500_000, 50_000, 100),
    "classic control": Default(500_000, 50_000, 100),
    "Box2D": Default(1_000_000, 200_000, 20),
    "MuJoCo": Default(1_000_000, 500_000, 20),
    "the DeepMind Control Suite": Default(1_000_000, 500_000, 20),
    "Brax": Default(1_000_000, 500_000, 20),
    "MiniGrid": Default(500_000, 100_000, 20),
    "Crafter": Default(1_000_000, 1_000_000, 10),
    "Atari": Default(1_000_000, 100_000, 10),
    "VizDoom": Default(1_000_000, 500_000, 10),
    "Retro": Default(1_000_000, 500_000, 10),
    "other environments": Default(1_000_000, 200_000, 20),
}
"""By kind of environment. Replay follows the published protocols where there are any: 500,000 steps of the DeepMind Control Suite,
1,000,000 of Crafter, 100,000 of Atari."""

REPLAY = ("delta_iris", "dreamer", "tdmpc", "tdmpc2")
BY_ALGORITHM = {"brax_ppo": 50_000_000, "q_learning": 500_000, "world_models": 2_000_000}
"""Algorithms whose budget is the same on every environment: Brax's own, a table's, and ten generations of controllers or more."""

EVALUATIONS = 10
"""Evaluations over a run that says nothing about them."""
RETRO_EVALUATION_STEPS, RETRO_VIDEO_STEPS = 1_000, 2_000
"""Where episodes of Retro games end outside of training: a greedy policy may never end one."""


def default_budget(algorithm: str, env_id: str) -> int:
    """Env steps of an experiment that names no end."""
    if algorithm in BY_ALGORITHM:
        return BY_ALGORITHM[algorithm]
    default = DEFAULTS[kind_of(env_id)]
    return default.replay if algorithm in REPLAY else default.on_policy


class Filled(NamedTuple):
    """What was filled in or made to fit, to be told once the config is whole."""

    budget: bool
    asked: int | None
    """The budget as it was written."""
    n_envs: int | None
    """Environments that were too many for it."""
    evaluation: bool
    retro: bool

    def notices(self, config: Config) -> list[str]:
        """One line each."""
        told, budget = [], config.max_env_steps
        if self.budget:
            on = "" if config.algo_id in BY_ALGORITHM else f" on {kind_of(config.env_id)}"
            told.append(f"No budget given: {budget:,} env steps, the default of {config.algo_id}{on}.")
        elif self.n_envs is not None:
            told.append(
                f"n_envs is {config.n_envs:,}: {self.asked:,} env steps are fewer than one step of {self.n_envs:,} environments."
            )
        elif self.asked is not None and self.asked != budget:
            told.append(
                f"max_env_steps is {budget:,}: {self.asked:,} is no multiple of what is stepped at once, and a budget is never exceeded."
            )
        if self.evaluation:
            often = "each epoch" if config.eval_freq_epochs == 1 else f"every {config.eval_freq_epochs:,} epochs"
            told.append(
                f"Evaluation: {config.eval_episodes} episodes {often}, as nothing is said about it "
                "(eval_freq_epochs: null turns it off)."
            )
        if self.retro:
            told.append(
                f"Evaluation cuts episodes after {RETRO_EVALUATION_STEPS:,} steps, and the final video's after {RETRO_VIDEO_STEPS:,}, "
                "as a Retro game may never end (eval_max_episode_steps sets another limit, null none)."
            )
        return told


def fill_in_budget(tree: Located, schema: type[BaseModel], phases: Sequence[Phase]) -> bool:
    """Give a budget to an experiment that neither has one nor ends by itself; whether it was given one."""
    bounds = (tree.get(name, default_of(schema, name)) for name in getattr(schema, "bounds", ()))
    if "max_env_steps" in tree or any(bound is not None for bound in bounds):
        return False
    if phases and all(_ends(phase) for phase in phases):
        return False
    tree["max_env_steps"] = default_budget(str(tree.get("algo_id")), str(tree.get("env_id", "")))
    return True


def _ends(phase: Phase) -> bool:
    """Whether a phase is over one day, whatever is learned."""
    durations = (phase.duration_steps, phase.duration_updates, phase.duration_cycles)
    return phase.type == "eval_only" or any(duration is not None for duration in durations)


def fit_budget(tree: Located) -> tuple[int | None, int | None]:
    """As many whole steps of all environments as the budget holds; of fewer environments where it holds not one.

    The budget as it was written, and the number of environments where it was too large. What is no count is left for validation to name.
    """
    budget, n_envs, processes = (_count(tree.get(name)) for name in ("max_env_steps", "n_envs", "devices"))
    if budget is None or n_envs is None:
        return budget, None
    processes = processes or 1
    too_many = n_envs if budget < n_envs * processes else None
    if too_many is not None:
        tree["n_envs"] = n_envs = max(1, budget // processes)
    tree["max_env_steps"] = budget // (n_envs * processes) * n_envs * processes or budget
    return budget, too_many


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def fill_in_evaluation(tree: Located, phases: Sequence[Phase], epochs: float | None) -> bool:
    """Evaluate a run of which nothing is said about that, ten times on the way; whether it was filled in."""
    if "eval_freq_epochs" in tree or any(hook.name == "evaluate" for phase in phases for hook in phase.hooks):
        return False
    tree["eval_freq_epochs"] = EVALUATIONS if epochs is None else max(1, round(epochs / EVALUATIONS))
    tree.setdefault("eval_episodes", DEFAULTS[kind_of(str(tree.get("env_id", "")))].episodes)
    return True


def fill_in_retro(tree: Located) -> bool:
    """Cut episodes of Retro games outside of training, unless something is said about that; whether it was filled in."""
    if family_of(str(tree.get("env_id", ""))) != "retro" or "eval_max_episode_steps" in tree:
        return False
    tree["eval_max_episode_steps"] = RETRO_EVALUATION_STEPS
    tree.setdefault("video_max_episode_steps", RETRO_VIDEO_STEPS)
    return True
