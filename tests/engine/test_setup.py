"""From a config to a session: composed components, dimensions, hooks and buffers that must exist."""

import platform
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from torch import nn

from gymlab.api import resolve
from gymlab.config.reads import Reads
from gymlab.config.targets import COMPONENTS
from gymlab.engine.setup import _check_buffer, bind_workflow, make_fabric, prepare
from gymlab.engine.workflow import PhaseView
from gymlab.errors import ConfigError
from gymlab.workflows.ppo import PPO

SMALL = {"max_env_steps": 64, "n_envs": 2, "n_steps": 16, "batch_size": 16}


@COMPONENTS.register("test_probe")
class Probe(nn.Module):
    """Takes its size from the environment."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)


def session(**fields):
    return prepare(resolve("CartPole-v1:ppo", **{**SMALL, **fields}).config)


def test_components_get_the_dimensions_that_the_environment_knows(monkeypatch):
    monkeypatch.setattr(PPO, "reads", Reads(components=("probe",)))
    node = {"_target_": "test_probe", "inputs": "${_dims.observation}", "outputs": "${_dims.action}"}
    made = session(components={"probe": node})
    layer = made.workflow.context.components.probe.layer
    assert (layer.in_features, layer.out_features) == (4, 2)
    made.close()


def test_optimizers_are_bound_to_the_parameters():
    made = session(optimizers={"policy": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5}})
    optimizer = made.workflow.optimizers["policy"]
    assert isinstance(optimizer, torch.optim.SGD)
    assert made.hyperparameters.policy_lr == 0.5
    made.close()


@pytest.mark.parametrize(("algorithm", "refused"), [("dreamer", True), ("q_learning", True), ("ppo", False)])
def test_an_algorithm_of_one_process_refuses_several(algorithm, refused):
    config = resolve("FrozenLake-v1", algo=algorithm, max_env_steps=64).config
    several = SimpleNamespace(world_size=2, global_rank=0, device=torch.device("cpu"))
    spaces = (gym.spaces.Discrete(16), gym.spaces.Discrete(4))
    with pytest.raises(ConfigError, match=f"{algorithm} trains in one process") if refused else nullcontext():
        bind_workflow(config, *spaces, several)


@pytest.mark.parametrize(("left", "steps"), [(None, 16), (1000, 16), (20, 5), (3, 1)])
def test_a_phase_gives_no_more_steps_than_it_has_left(left, steps):
    assert PhaseView("p", "online", 0.0, 0, 0, 0, left).steps(16, num_envs=4) == steps


def phases(**fields):
    return {
        "phases": [
            {"name": "only", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "rollout", **fields}
        ]
    }


def test_a_hook_that_the_algorithm_does_not_have_names_the_nearest():
    with pytest.raises(ConfigError, match=r"update_controler.*update_controller"):
        session(training=phases(hooks=["collect", "update_controler"]))


def test_a_buffer_that_nobody_defined_is_named():
    with pytest.raises(ConfigError, match=r"rolout.*rollout"):
        session(training=phases(buffer="rolout"))


def test_a_buffer_that_a_hook_names_must_exist_and_do_what_the_hook_needs():
    hooks = ["collect", {"name": "update_controller", "buffer": "rolout"}]
    with pytest.raises(
        ConfigError, match=r"Hook 'update_controller' of phase 'only' names the buffer 'rolout'.*rollout"
    ):
        session(training=phases(hooks=hooks))
    made = session(training=phases(hooks=["collect", {"name": "update_controller", "buffer": "rollout"}]))
    made.close()
    for hook, buffer, use in (("collect", Drawn, "adds to"), ("update_controller", Filled, "draws from")):
        with pytest.raises(ConfigError, match=rf"Hook '{hook}' of phase 'p' {use} the buffer 'b'.*`buffer:`.*: other"):
            _check_buffer(f"Hook '{hook}' of phase 'p'", "b", {"b": buffer(), "other": Both()}, hook)


class Drawn:
    def sample(self):
        return None


class Filled:
    def add(self, trajectory):
        pass


class Both(Drawn, Filled):
    pass


@pytest.mark.skipif(find_spec("torch_xla") is not None, reason="torch_xla is installed")
def test_an_accelerator_whose_package_is_missing_is_named_with_the_fix():
    with pytest.raises(ConfigError, match=r"accelerator='tpu'.*torch_xla.*Set accelerator=auto.* or accelerator=cpu"):
        make_fabric(resolve("CartPole-v1:ppo", accelerator="tpu").config)


def test_an_accelerator_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="accelerator='cuda'"):
        make_fabric(resolve("CartPole-v1:ppo", accelerator="cuda").config)


def test_small_networks_get_one_thread_and_a_number_wins():
    session().close()
    assert torch.get_num_threads() == 1
    session(torch_threads=2).close()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


KEPT = """
import resource, torch
from gymlab.engine.setup import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
before = faults()
for _ in range(12):
    torch.ones(64 << 20, dtype=torch.uint8)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc")
def test_freed_memory_is_kept() -> None:
    """64 MB are 16,384 pages, which are not paid for each time: once, and again where a small piece took a corner of the gap."""
    ran = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 6 * 16_384


def test_a_part_that_lacks_arguments_is_named_by_its_slot():
    replay = "buffers.replay={_target_: prioritised_replay, capacity: 100}"
    config = resolve("CartPole-v1", algo="dreamer", overrides=[replay]).config
    with pytest.raises(
        ConfigError, match=r"^buffers.replay: .* it needs fields, num_envs, generator as well.*_partial_"
    ):
        prepare(config)
