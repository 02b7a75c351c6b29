"""What a `_target_` may name."""

import functools

import pytest

from gymlab.config.targets import COMPONENTS, TORCH_NAMES, check_targets, instantiate
from gymlab.errors import ConfigError

REFUSED = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "builtins.exec",
    "functools.partial",
    "subprocess.run",
    "torch.nn.parameter.torch.os.system",
    "torch.optim.adam.torch.load",
    "torch.load",
    "torch.nn.Linear.__init__",
    "torch.nn.linear",
    "torch.optim.Adam ",
    "torch.hub.load",
    "hydra.utils.instantiate",
    "gymlab.config.targets.instantiate",
    "__import__",
    "",
]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_wherever_it_stands(name):
    node = {"_target_": name, "x": 1}
    for tree, path in (
        (node, "_target_"),
        ({"optimizers": {"actor": node}}, "optimizers.actor._target_"),
        ({"components": {"layers": [{"a": 1}, [node]]}}, "components.layers[1][0]._target_"),
        ({"outer": {"_target_": "torch.nn.Sequential", "inner": node}}, "outer.inner._target_"),
        ({"env_kwargs": {"deep": {"er": (node,)}}}, "env_kwargs.deep.er[0]._target_"),
    ):
        with pytest.raises(ConfigError) as error:
            check_targets(tree, "x.yaml")
        assert str(error.value).startswith(f"x.yaml: {path} names {name!r}, which is refused")
        with pytest.raises(ConfigError):
            instantiate(tree)


@pytest.mark.parametrize("value", [None, 3, ["os.system"], {"a": "os.system"}])
def test_a_target_is_a_name(value):
    with pytest.raises(ConfigError, match="must be a name"):
        check_targets({"a": {"_target_": value}})


@pytest.mark.parametrize("key", ["_args_", "_recursive_", "_convert_"])
def test_hydras_other_calling_keys_are_refused(key):
    with pytest.raises(ConfigError, match=key):
        check_targets({"a": {"_target_": "torch.nn.ReLU", key: [1]}})


def test_near_names_are_told():
    with pytest.raises(ConfigError, match=r"Did you mean 'torch.optim.Adam'"):
        check_targets({"_target_": "torch.optim.Adm"})


def test_every_listed_torch_name_exists():
    import torch

    for name in TORCH_NAMES:
        _, room, attribute = name.split(".")
        assert isinstance(getattr(getattr(torch, room), attribute), type), name


def test_a_torch_class_is_built_with_what_is_inside_it():
    import torch

    module = instantiate({"_target_": "torch.nn.Linear", "in_features": 3}, out_features=2)
    assert isinstance(module, torch.nn.Linear)
    assert module.weight.shape == (2, 3)


def test_partial_waits_for_the_parameters():
    import torch

    factory = instantiate({"_target_": "torch.optim.Adam", "_partial_": True, "lr": 1e-4})
    assert isinstance(factory, functools.partial)
    optimizer = factory([torch.nn.Parameter(torch.zeros(2))])
    assert optimizer.param_groups[0]["lr"] == 1e-4


def test_a_registered_component_with_nested_ones(monkeypatch):
    monkeypatch.setattr(COMPONENTS, "_entries", {})

    @COMPONENTS.register("part")
    def part(size):
        return ("part", size)

    @COMPONENTS.register("whole")
    def whole(parts, name):
        return {"name": name, "parts": parts}

    node = {
        "_target_": "whole",
        "name": "x",
        "parts": [{"_target_": "part", "size": 1}, {"_target_": "part", "size": 2}],
    }
    assert instantiate(node) == {"name": "x", "parts": [("part", 1), ("part", 2)]}
    assert instantiate({"plain": [1, {"a": 2}]}) == {"plain": [1, {"a": 2}]}


def test_wrong_arguments_are_told_in_one_line():
    with pytest.raises(
        ConfigError, match=r"torch.nn.Linear cannot be built from in_features: it needs out_features as"
    ):
        instantiate({"_target_": "torch.nn.Linear", "in_features": 3})
    with pytest.raises(ConfigError, match=r"from in_features, width: it got an unexpected keyword argument 'width'"):
        instantiate({"_target_": "torch.nn.Linear", "in_features": 3, "width": 3})
