"""Does every setting do something? Each key of each algorithm is changed in a training of a second, and what comes out is compared.

    python -m benchmarks.honesty                     every algorithm but brax_ppo, whose programs compile for long
    python -m benchmarks.honesty ppo dreamer_v3      some subjects
    python -m benchmarks.honesty --write --jobs 2    also into docs/honesty.md, two subjects at a time

Of a changed setting one of these must hold:

    effect    the last model, the metrics (without sys/), the files of the run or its result differ
    refused   it is an error that names it and says that nothing reads it here, not that this value will not do; where the declaration
              of the config class says that it does nothing, the training is made all the same and must come out as without
    notice    nothing differs, and a notice names it
    listed    it is on the list below, with the reason

All else is dishonest, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest import mock

import gymnasium as gym
import numpy as np
from torch import Tensor, nn

import gymlab
from benchmarks.pages import ROOT
from gymlab.config import Loaded, dump, from_dict
from gymlab.config.effects import idle_settings
from gymlab.config.field_types import alternatives
from gymlab.config.reads import SLOT_GROUPS
from gymlab.config.schedules import Schedule
from gymlab.config.schema import Config, tunable_fields
from gymlab.config.targets import COMPONENTS
from gymlab.engine.run import Run
from gymlab.engine.setup import prepare
from gymlab.engine.source import source_commit
from gymlab.engine.train import train
from gymlab.engine.workflow import find_workflow
from gymlab.errors import GymlabError

HONEST = EFFECT, REFUSED, NOTICE, LISTED = "effect", "refused", "notice", "listed"
DISHONEST = NOTHING, WRONG, CRASHED, UNTRIED = "NOTHING", "REFUSED WRONGLY", "CRASHED", "NOT TRIED"
REFUSALS = (
    "has no effect", "reads nothing of that name", "leave it out", "exists for Atari only", "need image observations", "no run to begin with",
    "a config begins a run", "Dreamer has:", "needs Box observations", "needs environments in workers",
)  # fmt: skip
"""What the refusal of a setting says; any other error is about the value that was tried."""

WALKED = ROOT / "benchmarks" / "honesty.json"
"""What was found, by subject."""
PAGE = ROOT / "docs" / "honesty.md"

STATED = {
    "env_id": "what is trained on",
    "algo_id": "what is trained",
    "variant": "a name",
    "project_id": "a name",
    "description": "words for people",
    "spec": "words for people",
    "params": "other keys refer to it",
    "dims": "other keys refer to it",
    "quiet": "what is printed",
    "alerts": "what is printed",
    "enable_wandb": "a tracker, which needs an account",
    "accelerator": "the device",
    "devices": "the number of devices",
    "torch_threads": "speed",
    "vectorization_mode": "speed, and what a backend makes of the seeds",
    "env_restarts": "counts failures of environments, and these have none",
    "env_step_timeout": "a limit in seconds that these environments do not reach",
    "checkpoint_minutes": "a time",
    "eval_time_limit": "a time",
    "init_from_run": "a path: another run",
    "dataset": "a path",
    "replay_on_disk": "where the replay lies; batches are the same",
    "max_states": "a limit beyond which there is an error",
    "grid": "how the table is drawn",
    "update_backend": "how gradients are computed; they are equal up to rounding",
    "reuse_model": "needs init_from_run",
}
"""Settings that are not tried, and why."""


@dataclass(frozen=True)
class Case:
    """A changed value, and what else both trainings have so that it can have an effect."""

    value: Any
    beneath: Mapping[str, Any] = field(default_factory=dict)
    along: Mapping[str, Any] = field(default_factory=dict)
    """What has to change with it, since sizes must fit."""


@dataclass(frozen=True)
class Subject:
    """A training of a second or so."""

    experiment: str
    algo: str | None
    fields: Mapping[str, Any]
    cases: Mapping[str, Case | Any] = field(default_factory=dict)
    """Values of settings for which the general ones will not do."""
    learns_apart: bool = False
    """Whether it learns in other environments than it is evaluated in: a setting that is refused may change evaluations, and no model."""


class Tile(gym.Env):
    """A bright tile on a ring of 4 that the action moves; it pays to be on the last, and the fifth step is the end."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None, pay: float = 1.0) -> None:
        self.render_mode = render_mode
        self.pay = pay

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Anywhere on the ring."""
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(4)), 0
        return self.render(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One place to the left or right, or none."""
        self.steps += 1
        self.place = (self.place + int(action) - 1) % 4
        return self.render(), self.pay * (self.place == 3), self.steps == 5, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The observation."""
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[4:8, 4 * self.place : 4 * self.place + 4] = (200, 100, 50)
        return picture


class OneLayer(nn.Module):
    """A policy of a plugin: parameters of the distribution, and a value."""

    def __init__(self, input_shape: tuple[int, ...], distribution: Any) -> None:
        super().__init__()
        self.actor_head = nn.Linear(input_shape[0], distribution.parameter_size)
        self.critic_head = nn.Linear(input_shape[0], 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, D] -> [B, P], [B]."""
        return self.actor_head(x), self.critic_head(x).squeeze(-1)


SMALL: dict[str, Any] = {
    "quiet": True, "video": False, "eval_episodes": 3, "eval_max_episode_steps": 60, "eval_freq_epochs": 1, "seed": 7,
    "early_stop_on_eval_threshold": False, "torch_threads": 1, "n_envs": 2,
}  # fmt: skip
DREAMS: dict[str, Any] = {
    **SMALL, "deter": 16, "hidden": 8, "units": 8, "stoch": 4, "horizon": 3, "batch_length": 8, "batch_size": 4, "train_ratio": 8,
    "prefill_steps": 64, "epoch_env_steps": 32, "max_env_steps": 160, "replay_size": 120,
}  # fmt: skip
PLANS: dict[str, Any] = {
    **SMALL, "max_env_steps": 128, "epoch_env_steps": 32, "seed_steps": 32, "latent": 16, "hidden": 16, "encoder_hidden": 16,
    "plan_samples": 12, "plan_policy_samples": 4, "plan_elites": 4, "plan_iterations": 2, "replay_size": 100, "batch_size": 8,
}  # fmt: skip
PLANS_CASES = {
    "max_episode_steps": 20, "size": Case("1m", {"hidden": None}), "plan_horizon": 1,
    "early_stop_on_train_threshold": Case(-2000.0, {"max_episode_steps": 8, "max_env_steps": 1000, "updates_per_step": 0.1}),
}  # fmt: skip
WORDS: dict[str, Any] = {
    **SMALL, "multiples": (1,), "halves": (1,), "fold": 4, "codebook_size": 8, "codebook_dim": 4, "token_features": 4,
    "tokenizer_channels": 8, "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1, "width": 16,
    "layers": 1, "heads": 2, "blocks": 4, "frame_channels": 8, "frame_features": 4, "actor_channels": 8, "actor_features": 2,
    "lstm": 8, "burn_in": 1, "horizon": 3, "tokenizer_batch": 2, "tokenizer_length": 4, "model_batch": 2, "actor_batch": 3,
    "alpha": 1.0, "collect_env_steps": 40, "first_env_steps": 60, "collect_steps": 5, "tokenizer_updates": 2, "model_updates": 2,
    "actor_updates": 2, "first_tokenizer_updates": 3, "first_model_updates": 2, "first_actor_updates": 2, "collect_epochs": None,
    "max_epochs": 4, "replay_size": 100, "max_env_steps": 10_000,
}  # fmt: skip
EVOLVES: dict[str, Any] = {
    **SMALL, "n_envs": 4, "hidden": 8, "mixtures": 2, "batch_size": 4, "batch_length": 8, "collect_env_steps": 200,
    "vae_updates": 4, "model_updates": 4, "population": 4, "rollouts": 2, "generations": 2, "elite_rollouts": 16, "elite_every": 2,
    "n_steps": 50, "max_env_steps": 20_000, "replay_size": 1000, "predict_end": True, "predict_reward": True,
}  # fmt: skip
DREAMT = {"evolve_in": "dream", "max_env_steps": 4000, "predict_end": False, "model_updates": 40, "dream_steps": 30}
OWN_POLICY = {"policy": Case("honesty.OneLayer", {"hidden_dims": None, "policy_kwargs": {}, "model_id": None})}
SUBJECTS: dict[str, Subject] = {
    "ppo": Subject(
        "CartPole-v1:ppo", None, {**SMALL, "n_steps": 32, "batch_size": 16, "n_epochs": 2, "max_env_steps": 256}, OWN_POLICY
    ),
    "ppo_pixels": Subject(
        "Tile-v0", "ppo",
        {
            **SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 2, "max_env_steps": 128,
            "policy_kwargs": {"channels": [4], "kernel_sizes": [4], "strides": [2]}, "hidden_dims": [8],
        },
        {
            "hidden_dims": [12], "policy": "mlp",
            "policy_kwargs": {"channels": [4], "kernel_sizes": [4], "strides": [2], "ortho_init": False},
            "model_id": Case("cnn_large", {"policy_kwargs": {}, "hidden_dims": None, "resize_obs": [40, 40]}),
        },
    ),
    "reinforce": Subject("CartPole-v1:reinforce", None, {**SMALL, "n_steps": 32, "batch_size": 16, "max_env_steps": 512}, OWN_POLICY),
    "q_learning": Subject(
        "CliffWalking-v1:q_learning", None,
        {**SMALL, "n_steps": 50, "max_env_steps": 400, "max_episode_steps": 20}, {"epoch_env_steps": 200},
    ),
    "dreamer_v1": Subject(
        "Pendulum-v1", "dreamer", {**DREAMS, "version": "v1"}, {"n_envs": 1, "optimizer": "laprop", "actor_gradient": "reinforce", "batch_size": 2, "replay_context": Case(1, {"prefill_steps": 80})},
    ),
    "dreamer_v2": Subject("CartPole-v1", "dreamer", {**DREAMS, "version": "v2"}, {
            "n_envs": 1, "optimizer": "laprop", "batch_size": 2,
            "buffers.replay": {"_target_": "ends_replay", "_partial_": True, "capacity": 60},
        }),
    "dreamer_v3": Subject("CartPole-v1", "dreamer", {**DREAMS, "version": "v3", "blocks": 4}, {"optimizer": "adam"}),
    "dreamer_pixels": Subject(
        "Tile-v0", "dreamer", {**DREAMS, "cnn_depth": 2, "resize_obs": [32, 32], "max_env_steps": 96, "epoch_env_steps": 16, "prefill_steps": 32},
        {
            "optimizer": "adam",
            "version": Case("v2", {"resize_obs": [64, 64], "prefill_steps": 64}), "resize_obs": [48, 48],
            "pretrain_updates": Case(2, {"prefill_steps": 64}), "pretrain_hook": Case("update_world_model", {"pretrain_updates": 2, "prefill_steps": 64}),
            "early_stop_on_train_threshold": Case(-2000.0, {"max_episode_steps": 1, "max_env_steps": 250, "train_ratio": 1}),
        },
    ),
    "tdmpc": Subject(
        "Pendulum-v1", "tdmpc", PLANS,
        {**PLANS_CASES, "plan_horizon": 4, "buffers.replay": {"_target_": "prioritised_replay", "_partial_": True, "capacity": 60}},
    ),
    "tdmpc2": Subject("Pendulum-v1", "tdmpc2", PLANS, PLANS_CASES),
    "world_models": Subject("CartPole-v1", "world_models", EVOLVES,
        {
            "max_env_steps": 400, "weight_decay": 1e4, "held_out": 0.5, "action_map": Case("thresholds", along={"threshold_actions": [0, 1, 1]}),
            "threshold_actions": Case([1, 0, 0], {"action_map": "thresholds", "threshold_actions": [0, 1, 1]}),
            "buffers.replay": {"_target_": "record_replay", "_partial_": True, "capacity": 60},
        },
    ),
    "delta_iris": Subject(
        "Tile-v0", "delta_iris", WORDS,
        {
            "max_env_steps": 100, "tokens": 1, "epsilon": 0.9, "size": Case("tiny", {"lstm": None}),
            "truncation_is_end": Case(False, {"max_episode_steps": 3}),
            "fold": Case(2, along={"frame_features": 1}), "halves": Case([0], along={"frame_features": 1}),
            "resize_obs": Case([32, 32], along={"frame_features": 1}),
            "width": Case(32, along={"frame_features": 8}), "frame_features": Case(8, along={"width": 32}),
            "revival_updates": Case(
                1000, {"codebook_size": 64, "tokenizer_updates": 60, "first_tokenizer_updates": 120}
            ),
        },
    ),
    "brax_ppo": Subject(
        "brax/inverted_pendulum", "brax_ppo",
        {
            **SMALL, "n_envs": 8, "unroll_length": 5, "batch_size": 8, "num_minibatches": 2, "num_updates_per_batch": 2,
            "policy_hidden_dims": [8], "value_hidden_dims": [8], "max_env_steps": 160, "max_episode_steps": 20,
        },
        learns_apart=True,
    ),
}  # fmt: skip
SLOW = ("brax_ppo",)
"""Subjects that are tried only when they are named."""

OF_ENVIRONMENT = {
    "CartPole-v1": {"sutton_barto_reward": True},
    "Pendulum-v1": {"g": 2.0},
    "CliffWalking-v1": {"is_slippery": True},
    "Tile-v0": {"pay": 3.0},
}
NETWORK = {"_target_": "torch.nn.Identity"}
GENERAL: dict[str, Case | Any] = {
    "env_wrappers": [{"id": "FrameSkipWrapper", "skip": 2}],
    "env_workers": 1,
    "double_buffer": True,
    "max_episode_steps": 3,
    "obs_type": "ram",
    "resize_obs": [20, 20],
    "normalize_obs": "rolling",
    "render_mode": "rgb_array",
    "max_epochs": 2,
    "epoch_env_steps": 48,
    "eval_warmup_epochs": 3,
    "eval_max_episode_steps": 2,
    "eval_step_limit": 2,
    "eval_recording_freq_epochs": 1,
    "video_max_seconds": Case(0.1, {"video": True, "eval_max_episode_steps": None}),
    "video_max_episode_steps": Case(2, {"video": True}),
    "keep_checkpoints": 1,
    "init_parts": ["policy"],
    "version": Case("v2", {"blocks": None}),
    "cell": Case("gru", {"blocks": None}),
    "pretrain_hook": Case("update_world_model", {"pretrain_updates": 2}),
    "collect_steps": 5,
    "batch_length": 6,
    "replay_context": 0,
    "actor_gradient": "dynamics",
    "reward_threshold": Case(1e9, {"reward_threshold": -1e9, "early_stop_on_eval_threshold": True}),
    "early_stop_on_eval_threshold": -2000.0,
    "early_stop_on_train_threshold": Case(-2000.0, {"max_episode_steps": 1}),
    "precision": "bf16-mixed",
    "components": {"encoder": NETWORK},
    "controllers": {"actor": NETWORK},
    "buffers": {"foo": NETWORK},
    "optimizers": {"foo": {"_target_": "torch.optim.SGD", "_partial_": True}},
    "training": {"resume_path": "missing"},
    # Networks and optimizers
    "policy": "cnn",
    "policy_kwargs": {"ortho_init": False},
    "model_id": Case("mlp_tiny", {"hidden_dims": None}),
    "hidden_dims": [12],
    "policy_hidden_dims": [12],
    "value_hidden_dims": [12],
    "activation": "elu",
    "optimizer": "sgd",
    "max_grad_norm": 0.001,
    "weight_decay": 0.5,
    "clip_range": 0.0001,
    "clip_range_vf": 0.0001,
    "target_kl": 1e-9,
    "agc": 0.001,
    # Objectives
    "normalize_returns": Case("rollout", {"policy_targets": "returns", "returns_type": "mc:rtg"}),
    "normalize_advantages": Case("rollout", {"policy_targets": "advantages"}),
    "replay_buffer_size": Case(64, {"replay_ratio": 2}),
    "replay_is_clip": Case(0.01, {"replay_ratio": 2}),
    "returns_type": "mc:episode",
    "discount_states": True,
    "unfinished": Case("bootstrap", {"policy_targets": "advantages"}),
    # World models
    "size": Case("12m", {"version": "v3", "deter": None, "hidden": 8, "units": 8}),
    "suite": Case("dmc", {"version": "v2", "blocks": None}),
    "imag_last": 2,
    "slow_every": 1,
    "slow_rate": 0.5,
    "free_nats": 1000.0,
    "held_out": 0.2,
    "replay_size": 60,
    "prioritize_ends": Case(True, {"max_episode_steps": 9}),
    "seed_steps": 48,
    "end_coef": Case(9.0, {"episodic": True}),
    "priority_alpha": Case(0.0, {"prioritised": True}),
    "priority_beta": Case(1.0, {"prioritised": True}),
    "slow_critic": "target",
    "max_std": 0.5,
    "bins": 51,
    "bin_reach": 3.0,
    "multiples": [2],
    "halves": [0],
    "collect_epochs": 1,
    "revival_updates": 100,
    "evolve_in": "dream",
    "dream_steps": Case(7, DREAMT),
    "temperature": Case(0.2, DREAMT),
    "controller_bias": False,
    "rounds": 2,
    "generations": 1,
}
"""Values to change to, where the next one of the type would not do."""
PARTS: dict[str, Any] = {
    "optimizers": {"_target_": "torch.optim.SGD", "_partial_": True},
    "components.returns": {"_target_": "n_step_return", "steps": 2},
    "buffers.replay": {"_target_": "sequence_replay", "_partial_": True, "capacity": 60},
    "buffers.episodes": {"_target_": "episodes", "_partial_": True, "capacity": 60},
}
"""What is put into the parts that an algorithm reads: by its name, or by that of its group."""


def changed_value(schema: type[Config], config: Config, name: str) -> Any:
    """Another value of a setting, by its type: the next choice, twice as much, half as much."""
    present, annotation = getattr(config, name), schema.model_fields[name].annotation
    members = alternatives(annotation)
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    if choices:
        return next(choice for choice in choices if choice != present)
    if isinstance(present, bool):
        return not present
    if isinstance(present, Schedule):
        return present.start / 2
    if isinstance(present, int):
        return 2 * present or 1
    if isinstance(present, float):
        return present / 2 or 0.5
    if present is None:
        return 2 if int in members else 0.5
    raise LookupError(f"{name}: {present!r}: name a changed value in GENERAL")


def case_of(subject: Subject, schema: type[Config], config: Config, name: str) -> Case:
    """How a setting is tried, or a part, such as `optimizers.policy`."""
    group, _, part = name.partition(".")
    if part:
        return Case({part: subject.cases.get(name) or PARTS.get(name) or PARTS[group]})
    if name == "env_kwargs":
        return Case(OF_ENVIRONMENT.get(config.env_id, {"backend": "spring"}))
    if name == "plateau_interventions":
        tunable = next(iter(tunable_fields(schema)), "nothing")
        rule = {"metric": "val/roll/ep_rew/mean", "window": 1, "min_improvement": 1e9, "set": {tunable: "*0.5"}}
        return Case([rule])
    found = subject.cases.get(name, GENERAL.get(name))
    if found is None or (not isinstance(found, Case) and found == getattr(config, name)):
        found = changed_value(schema, config, name)
    if not isinstance(found, Case):
        return Case(found)
    value = changed_value(schema, config, name) if found.value == getattr(config, name) else found.value
    return Case(value, {key: value for key, value in found.beneath.items() if key in schema.model_fields}, found.along)


def fingerprint(run: Run) -> dict[str, str]:
    """What came out of a training, without what the clock decides and without the settings that are logged."""
    models = sorted(run.dir.glob("checkpoints/epoch*/model.safetensors"))
    settings = {f"train/{name}" for name in tunable_fields(find_workflow(run.config_data["algo_id"]).Config)}
    metrics = {
        name: column for name, column in run.metrics.items() if not name.startswith("sys/") and name not in settings
    }
    files = [
        (str(path.relative_to(run.dir)), path.stat().st_size if path.suffix == ".mp4" else 0)
        for path in run.dir.rglob("*")
    ]
    parts = {
        "model": models[-1].read_bytes() if models else b"",
        "metrics": repr(sorted(metrics.items())).encode(),
        "files": repr(sorted(files)).encode(),
        "result": repr([run.result, run.record.get("reason"), run.record.get("status")]).encode(),
    }
    return {name: sha256(content).hexdigest() for name, content in parts.items()}


class Trainings:
    """Trainings of one subject; each is made once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.done: dict[str, dict[str, str]] = {}

    def resolve(self, **fields: Any) -> Loaded:
        """The subject's config with other fields; None takes one of its own away."""
        merged = {**self.subject.fields, **fields}
        own = {name: value for name, value in merged.items() if value is not None or name in fields}
        given = {name: value for name, value in own.items() if value is not None}
        return gymlab.resolve(self.subject.experiment, algo=self.subject.algo, **given)

    def outcome(self, config: Config, *, unchecked: bool = False) -> dict[str, str]:
        """The fingerprint of a training, which prints nothing."""
        key = repr(dump(config))
        if key not in self.done:
            check = mock.patch("gymlab.engine.setup.check_on_environments", return_value=[])
            silence = contextlib.redirect_stdout(io.StringIO())
            with tempfile.TemporaryDirectory() as runs, silence, contextlib.redirect_stderr(io.StringIO()):
                with check if unchecked else contextlib.nullcontext():
                    run = train(config, runs_dir=Path(runs), run_id="run")
                self.done[key] = fingerprint(run)
        return self.done[key]

    def check_repeats(self) -> None:
        """Train twice with the same settings: where that differs, every setting would seem to have an effect."""
        config = self.resolve().config
        first = self.outcome(config)
        self.done.clear()
        second = self.outcome(config)
        if differs := [part for part in first if first[part] != second[part]]:
            raise SystemExit(
                f"Two trainings of {config.env_id} by {config.algo_id} with the same settings differ: {differs}"
            )


@dataclass(frozen=True)
class Verdict:
    """What a changed setting did."""

    kind: str
    detail: str

    @property
    def honest(self) -> bool:
        """Whether somebody who sets it is not deceived."""
        return self.kind not in DISHONEST


def judge(trainings: Trainings, schema: type[Config], name: str) -> Verdict:
    """Change one setting, and see."""
    if name in STATED:
        return Verdict(LISTED, STATED[name])
    case = case_of(trainings.subject, schema, trainings.resolve().config, name)
    field_name = name.partition(".")[0]
    try:
        base = trainings.resolve(**case.beneath)
        before = trainings.outcome(base.config)
    except GymlabError:
        # What it needs is refused for this algorithm: then it is tried by itself.
        case = Case(case.value, along=case.along)
        base = trainings.resolve()
        before = trainings.outcome(base.config)
    try:
        changed = trainings.resolve(**{**case.beneath, **case.along, field_name: case.value})
        after = trainings.outcome(changed.config)
    except GymlabError as error:
        return _refused(trainings, base.config, name, case, before, str(error).splitlines()[0])
    except Exception as error:
        return Verdict(CRASHED, f"{type(error).__name__}: {error}")
    parts = [part for part in before if before[part] != after[part]]
    if parts:
        return Verdict(EFFECT, ", ".join(parts))
    told = [notice for notice in (*changed.notices, *_told_when_built(changed.config)) if name in notice]
    return (
        Verdict(NOTICE, told[0])
        if told
        else Verdict(NOTHING, f"{getattr(base.config, field_name)!r} -> {case.value!r}")
    )


def _told_when_built(config: Config) -> Sequence[str]:
    session = prepare(config)
    session.close()
    return session.notices


def _refused(
    trainings: Trainings, base: Config, name: str, case: Case, before: dict[str, str], message: str
) -> Verdict:
    """A refusal; where it says that there is no effect, there must be none."""
    if name not in message:
        return Verdict(UNTRIED, f"another setting is refused: {message}")
    if not any(words in message.replace("Leave", "leave") for words in REFUSALS):
        return Verdict(UNTRIED, message)
    if "has no effect" in message:
        try:
            forced = from_dict({**dump(base), name: case.value}, lambda algo: find_workflow(algo).Config)
            after = trainings.outcome(forced, unchecked=True)
        except Exception:
            # What would not even train was well refused.
            return Verdict(REFUSED, message)
        compared = ["model"] if trainings.subject.learns_apart else list(before)
        differs = [part for part in compared if before[part] != after[part]]
        if differs and list(idle_settings(forced)):
            return Verdict(WRONG, f"{', '.join(differs)} differ: {message}")
    return Verdict(REFUSED, message)


def walk(name: str, keys: Sequence[str] = ()) -> Iterator[tuple[str, Verdict]]:
    """Every key of a subject's algorithm with its verdict, and every part that the algorithm reads."""
    subject = SUBJECTS[name]
    trainings = Trainings(subject)
    schema = type(trainings.resolve().config)
    trainings.check_repeats()
    for key in keys_of(schema, subject):
        if not keys or key in keys:
            yield key, judge(trainings, schema, key)


def keys_of(schema: type[Config], subject: Subject) -> list[str]:
    """Settings, and the parts that are read."""
    reads = find_workflow(subject.algo or subject.experiment.partition(":")[2]).reads
    return [*schema.model_fields, *(f"{group}.{part}" for group in SLOT_GROUPS for part in getattr(reads, group))]


def register_own() -> None:
    """An environment and a policy of this walk's own."""
    if "Tile-v0" not in gym.registry:
        gym.register("Tile-v0", Tile)
        COMPONENTS.register("honesty.OneLayer")(OneLayer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print a line for each key, and say what is dishonest."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.honesty", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument("--keys", default="", help="only these, separated by commas")
    parser.add_argument("--write", action="store_true", help="write docs/honesty.md")
    parser.add_argument("--jobs", type=int, default=1, help="subjects at a time")
    options = parser.parse_args(arguments)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    subjects = options.subjects or [name for name in SUBJECTS if name not in SLOW]
    keys = [key for key in options.keys.split(",") if key]
    if keys and options.write:
        parser.error("--write takes whole walks, without --keys")
    task = partial(print_walk, keys=keys, write=options.write)
    if options.jobs == 1:
        found = dict(zip(subjects, map(task, subjects), strict=True))
    else:
        with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            found = dict(zip(subjects, pool.map(task, subjects), strict=True))
    dishonest = [(name, key) for name, keys in found.items() for key, verdict in keys.items() if not verdict.honest]
    for name, key in dishonest:
        print(f"dishonest: {name} {key}: {found[name][key].kind} {found[name][key].detail}")
    return 1 if dishonest else 0


def print_walk(name: str, keys: Sequence[str], *, write: bool = False) -> dict[str, Verdict]:
    """Walk a subject, with a line for each key; `write` it into the page."""
    began = time.monotonic()
    warnings.simplefilter("ignore")
    register_own()
    found = {}
    for key, verdict in walk(name, keys):
        found[key] = verdict
        print(f"{name:15} {key:32} {verdict.kind:9} {verdict.detail}"[:200], flush=True)
    print(f"{name}: {_counted(found)} in {time.monotonic() - began:.0f} s", flush=True)
    if write:
        record(name, found)
    return found


def record(name: str, found: Mapping[str, Verdict]) -> None:
    """Put a subject's verdicts in the place of its older ones, and write the page from all of them."""
    verdicts = {kind: [key for key, one in found.items() if one.kind == kind] for kind in (*HONEST, *DISHONEST)}
    known = {**walked(), name: {"commit": source_commit() or "unknown", **verdicts}}
    WALKED.write_text(
        json.dumps({one: known[one] for one in SUBJECTS if one in known}, indent=1) + "\n", encoding="utf-8"
    )
    PAGE.write_text(page(walked()), encoding="utf-8")


def walked() -> dict[str, dict[str, Any]]:
    """Of each subject that was walked: at which commit, and the keys by what they did."""
    found: dict[str, dict[str, Any]] = json.loads(WALKED.read_text(encoding="utf-8")) if WALKED.is_file() else {}
    return found


def _counted(verdicts: Mapping[str, Verdict]) -> str:
    counts = Counter(verdict.kind for verdict in verdicts.values())
    return ", ".join(f"{counts[kind]} {kind}" for kind in (*HONEST, *DISHONEST) if counts[kind])


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/honesty.md."""
    missing = [name for name in SUBJECTS if name not in found]
    lines = [
        "# What every setting does",
        "",
        "What `python -m benchmarks.honesty` found: each setting of each algorithm, and each part that it reads, is changed in a training of about a "
        "second, and the last model, the metrics (without `sys/`), the files and the result of the run are compared with those of the "
        "training without." + (f" Not walked yet: {', '.join(missing)}." if missing else ""),
        "",
        "| training | effect | refused by name | gives a notice | stated below | dishonest | at |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, verdicts in found.items():
        counts = [len(verdicts[kind]) for kind in HONEST]
        dishonest = sum(len(verdicts[kind]) for kind in DISHONEST)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {dishonest} | `{verdicts['commit']}` |")
    lines += [
        "",
        "What is refused for want of effect was trained all the same where that can be built: it came out as without.",
        "",
    ]
    for name, verdicts in found.items():
        lines += [f"## {name}", ""]
        for kind in (EFFECT, REFUSED, NOTICE, *DISHONEST):
            names = [f"`{key}`" for key in verdicts[kind]]
            lines += [*textwrap.wrap(f"- {kind}: {', '.join(names)}", 120, subsequent_indent="  ")] if names else []
        lines.append("")
    lines += ["## Stated", "", "| setting | why it is not tried |", "|---|---|"]
    lines += [f"| `{key}` | {why} |" for key, why in STATED.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
