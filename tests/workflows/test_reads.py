"""What each workflow says it reads and logs is true; settings that once had no effect work or are refused by name."""

import csv
from fnmatch import fnmatchcase

import pytest
from test_delta_iris import TINY as TINY_DELTA_IRIS
from test_tdmpc2 import TINY as TINY_TDMPC
from test_world_models import TINY as TINY_WORLD_MODELS

import gymlab
from gymlab.engine.logged import logged
from gymlab.engine.run import Run
from gymlab.engine.workflow import find_workflow, workflow_names
from gymlab.errors import ConfigError

ROLLOUTS = {"n_envs": 2, "n_steps": 64, "batch_size": 32, "max_env_steps": 256}
QUIET = {"quiet": True, "video": False, "eval_episodes": 1, "eval_max_episode_steps": 5, "eval_freq_epochs": 2}


@pytest.mark.parametrize(
    ("experiment", "algo", "fields"),
    [
        ("CartPole-v1", "ppo", {**ROLLOUTS, "target_kl": 1e-9, "keep_episodes": 1}),
        ("CartPole-v1", "reinforce", ROLLOUTS),
        ("FrozenLake-v1", "q_learning", {"n_envs": 2, "n_steps": 64, "max_env_steps": 256}),
        ("CartPole-v1", "tdmpc2", {**TINY_TDMPC, "max_env_steps": 120}),
        ("CartPole-v1", "tdmpc", {**TINY_TDMPC, "max_env_steps": 120}),
        ("CartPole-v1", "world_models", {**TINY_WORLD_MODELS, "generations": 1, "seed": 0, "max_env_steps": 2000}),
        ("Tile-v0", "delta_iris", TINY_DELTA_IRIS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_metric_is_declared(tmp_path, experiment, algo, fields):
    run = gymlab.train(experiment, algo=algo, runs_dir=tmp_path, **{**fields, **QUIET})
    assert_declared(run)


def test_every_metric_of_dreamer_is_declared(dreaming_runs):
    assert_declared(Run(dreaming_runs / "dreamer"))


def assert_declared(run):
    config = gymlab.resolve(str(run.config_path)).config
    known = logged(config, find_workflow(config.algo_id), config.training.phases)
    with (run.dir / "metrics.csv").open() as file:
        columns = set(next(csv.reader(file)))
    own = {name for name in columns if not name.startswith(("train/cnt/", "train/alerts/", "test/"))}
    assert {name for name in own if not any(fnmatchcase(name, pattern) for pattern in known)} == set()
    reads = find_workflow(config.algo_id).reads
    assert reads.metrics is not None
    assert len(own) > 10


OPTIMIZER = {"_target_": "torch.optim.SGD", "_partial_": True}
PART = {"_target_": "identity", "size": 4}


@pytest.mark.parametrize("algo", [name for name in workflow_names() if not name.startswith("test_")])
@pytest.mark.parametrize("group", ["optimizers", "components", "controllers", "buffers"])
def test_a_part_that_a_workflow_does_not_read_is_refused(algo, group):
    with pytest.raises(ConfigError, match=rf"`{group}.nonsense`: {algo} reads nothing of that name"):
        gymlab.resolve("CartPole-v1", algo=algo, **{group: {"nonsense": PART}})


IGNORED = [
    ("ppo", "components", "encoder"), ("dreamer", "components", "return_computer"), ("dreamer", "components", "encoder"),
    ("dreamer", "components", "probe"), ("tdmpc2", "components", "dynamics_model"), ("world_models", "components", "vae"),
    ("world_models", "components", "dynamics_model"), ("ppo", "components", "returns"), ("reinforce", "components", "returns"),
    ("q_learning", "components", "returns"), ("tdmpc2", "components", "returns"), ("ppo", "controllers", "actor"),
    ("dreamer", "controllers", "actor"), ("world_models", "controllers", "planner"), ("ppo", "optimizers", "actor"),
    ("reinforce", "optimizers", "baseline"), ("tdmpc2", "optimizers", "policy"), ("world_models", "optimizers", "model"),
    ("q_learning", "optimizers", "policy"),
]  # fmt: skip
"""Settings that an earlier release took, showed and did not use."""


@pytest.mark.parametrize(("algo", "group", "name"), IGNORED)
def test_settings_that_had_no_effect_are_refused_by_name(algo, group, name):
    with pytest.raises(ConfigError, match=rf"`{group}\.{name}`: {algo} reads nothing of that name"):
        gymlab.resolve("CartPole-v1", algo=algo, **{group: {name: PART}})


@pytest.mark.parametrize(
    ("algo", "name", "field"),
    [("ppo", "policy", "policy_lr"), ("reinforce", "value", "value_lr"), ("dreamer", "all", "model_lr")],
)
def test_the_rate_in_an_optimizers_node_is_the_rate(algo, name, field):
    config = gymlab.resolve("CartPole-v1", algo=algo, optimizers={name: {**OPTIMIZER, "lr": 0.125}}).config
    rate = getattr(config, field)
    assert getattr(rate, "start", rate) == 0.125
