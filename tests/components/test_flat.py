import copy

import numpy as np
import pytest
import torch
from torch import nn

from gymlab.components.distributions import Categorical
from gymlab.components.flat import FlatParameters, count_parameters
from gymlab.components.networks import build_policy


@pytest.fixture
def network():
    torch.manual_seed(0)
    return build_policy((4,), Categorical(2), is_image=False)


def test_parameters_keep_their_values_and_become_views(network):
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    flat = FlatParameters(network)
    assert flat.parameter.numel() == count_parameters(network) == 9155
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.detach(), before[name])
        assert p.untyped_storage().data_ptr() == flat.parameter.untyped_storage().data_ptr()
    with torch.no_grad():
        flat.parameter.zero_()
    assert all(torch.all(p == 0) for p in network.parameters())


def test_backward_fills_the_flat_gradient(network):
    flat = FlatParameters(network)
    network(torch.randn(3, 4))[1].sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in network.critic_head.parameters()])
    torch.testing.assert_close(flat.gradient[flat.parts()["critic_head"]], expected)
    assert expected.abs().sum() > 0


def test_parts_follow_each_other(network):
    parts = FlatParameters(network).parts()
    assert parts == {"trunk": slice(0, 8960), "actor_head": slice(8960, 9090), "critic_head": slice(9090, 9155)}


def test_equal_layers_of_two_trunks_are_one_array(network):
    flat = FlatParameters(network)
    stacked = flat.numpy_view("actor_trunk.layers.1.weight", "critic_trunk.layers.1.weight")
    np.testing.assert_array_equal(stacked[0], network.actor_trunk.layers[1].weight.detach())
    np.testing.assert_array_equal(stacked[1], network.critic_trunk.layers[1].weight.detach())
    with pytest.raises(ValueError, match="side by side"):
        flat.numpy_view("actor_trunk.layers.0.weight", "actor_trunk.layers.1.weight")


def test_views_survive_loading_moving_and_saving(network, tmp_path):
    from safetensors.torch import load_file, save_file

    flat = FlatParameters(network)
    view = flat.numpy_view("critic_head.bias")
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    state["critic_head.bias"] = torch.tensor([7.0])
    network.load_state_dict(state)
    assert view[0] == 7
    network.to("cpu")
    network.float()
    network.critic_head.bias.data.fill_(8.0)
    assert view[0] == 8
    assert flat.parameter[-1] == 8


def test_a_copy_stands_on_its_own(network):
    FlatParameters(network)
    other = copy.deepcopy(network)
    network.critic_head.bias.data.fill_(3.0)
    assert other.critic_head.bias.item() == 0


def test_any_module_can_be_flattened_and_frozen_parameters_stay_out():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].weight.requires_grad_(False)
    flat = FlatParameters(module)
    assert flat.parameter.numel() == 3 + 4
    assert list(flat.parts()) == ["trunk"]
