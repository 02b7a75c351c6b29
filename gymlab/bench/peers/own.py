"""gymlab through its Python API: a whole run with its directory, metrics and final checkpoint, without evaluation."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from typing import Any

import gymlab
from gymlab.bench.measure import Mark
from gymlab.bench.settings import Setting
from gymlab.engine.workflow import CollectResult, PhaseView, find_workflow
from gymlab.metrics.names import CPU_SECONDS, ENV_STEPS, WALL_SECONDS


def fields(setting: Setting, seed: int, env_steps: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The setting as fields of gymlab's config: all that the comparison fixes; the rest is gymlab's default."""
    return {
        "n_envs": setting.n_envs,
        "n_steps": setting.n_steps,
        "n_epochs": setting.n_epochs,
        "batch_size": setting.batch_size,
        "gamma": setting.gamma,
        "gae_lambda": setting.gae_lambda,
        "policy_lr": f"lin_{setting.learning_rate}" if setting.linear else setting.learning_rate,
        "clip_range": f"lin_{setting.clip_range}" if setting.linear else setting.clip_range,
        "ent_coef": 0.0,
        # The peers' 0.5: their squared error is not halved.
        "vf_coef": 1.0,
        "max_grad_norm": 0.5,
        "normalize_advantages": "batch",
        "optimizer": "adam",
        **({"model_id": "cnn_nature"} if setting.pixels else {"hidden_dims": [64, 64], "activation": "tanh"}),
        "eval_freq_epochs": None,
        "eval_episodes": 1,
        "video": False,
        "early_stop_on_eval_threshold": False,
        "early_stop_on_train_threshold": False,
        "max_env_steps": env_steps,
        "quiet": True,
        "seed": seed,
        **options,
    }


def train(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], max_seconds: float | None
) -> list[Mark]:
    """Train for `env_steps` and give a mark for every row of metrics; `max_seconds` cuts off peers only."""
    with tempfile.TemporaryDirectory() as runs:
        run = gymlab.train(f"{setting.env_id}:ppo", runs_dir=runs, **fields(setting, seed, env_steps, options))
        metrics: dict[str, list[Any]] = run.metrics
    columns = (metrics[ENV_STEPS], metrics[WALL_SECONDS], metrics[CPU_SECONDS])
    return [Mark(0, 0.0, 0.0), *(Mark(*row) for row in zip(*columns, strict=True))]


def time_to_threshold(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], threshold: float, window: int
) -> tuple[float, int] | None:
    """Seconds and steps from the start of the training loop until the threshold; None when the budget ends first."""
    workflow: Any = find_workflow("ppo")
    collect = workflow.collect
    returns: deque[float] = deque(maxlen=window)
    started: list[float] = []
    reached: list[tuple[float, int]] = []

    def watched(self: Any, phase: PhaseView) -> CollectResult:
        if not started:
            started.append(time.perf_counter())
        result: CollectResult = collect(self, phase)
        returns.extend(episode.env_return for episode in result.episodes)
        if not reached and len(returns) == window and sum(returns) / window >= threshold:
            steps = self.context.counters.env_steps + result.env_steps
            reached.append((time.perf_counter() - started[0], steps))
        return result

    # The API tells of an episode only in means over a longer window; this process does nothing but measure.
    workflow.collect = watched
    try:
        with tempfile.TemporaryDirectory() as runs:
            gymlab.train(f"{setting.env_id}:ppo", runs_dir=runs, **fields(setting, seed, env_steps, options))
    finally:
        workflow.collect = collect
    return reached[0] if reached else None
