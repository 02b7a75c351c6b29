"""The Python API: configs with fields on top, plugins by name or file, a debugger that gets one environment."""

import sys
import types

import numpy as np
import pytest

import gymlab
from gymlab.api import load_plugins
from gymlab.engine.workflow import workflow_names
from gymlab.errors import ConfigError

PLUGIN = """
from gymlab.engine.workflow import Workflow, register_workflow

@register_workflow("{name}")
class Mine(Workflow):
    def initialize(self): ...
    def act(self, observation, state=None, *, deterministic=False, action_mask=None): ...
"""


def test_fields_and_overrides_lie_on_top_of_the_experiment():
    config = gymlab.resolve("CartPole-v1:ppo", overrides=["gamma=0.9"], n_envs=16, batch_size=512).config
    assert (config.gamma, config.n_envs, config.batch_size) == (0.9, 16, 512)


def test_nothing_named_is_the_bandit():
    config = gymlab.resolve().config
    assert (config.env_id, config.algo_id) == ("Bandit-v0", "ppo")


@pytest.mark.parametrize("by_file", [True, False])
def test_a_plugin_is_a_module_or_a_file(tmp_path, monkeypatch, by_file):
    name = f"plugin_of_mine_{by_file}".lower()
    (tmp_path / f"{name}.py").write_text(PLUGIN.format(name=name))
    monkeypatch.setattr(sys, "path", list(sys.path))
    if not by_file:
        monkeypatch.chdir(tmp_path)
    load_plugins([str(tmp_path / f"{name}.py") if by_file else name])
    assert name in workflow_names()


def test_a_plugin_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no_such_plugin"):
        load_plugins(["no_such_plugin"])


def test_under_a_debugger_there_is_one_environment_and_a_batch_that_fits(monkeypatch):
    monkeypatch.setitem(sys.modules, "debugpy", types.ModuleType("debugpy"))
    config = gymlab.resolve("CartPole-v1:ppo").config
    assert (config.n_envs, config.vectorization_mode) == (1, "sync")
    assert (config.n_envs * config.n_steps) % config.batch_size == 0
    assert gymlab.resolve("CartPole-v1:ppo", n_envs=2).config.n_envs == 2


def test_settings_of_numpy_and_functions_are_taken():
    config = gymlab.resolve(
        "CartPole-v1:ppo",
        policy_lr=lambda progress: 1e-3 * (1 - progress) ** 2,
        clip_range={"start": np.float32(0.25), "end": 0},
        seed=np.int64(3),
        hidden_dims=np.array([8, 8]),
        env_kwargs={"sutton_barto_reward": np.bool_(True)},
    ).config
    assert config.policy_lr.value(config.max_env_steps // 2, config.max_env_steps) == pytest.approx(2.5e-4, abs=1e-7)
    assert (config.clip_range.start, config.clip_range.end) == (0.25, 0.0)
    assert (config.seed, config.hidden_dims, config.env_kwargs) == (3, (8, 8), {"sutton_barto_reward": True})
