import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from gymlab.components.distributions import Categorical, distribution_for
from gymlab.components.networks import (
    MODEL_IDS,
    ActorCritic,
    build_policy,
    convolve_bytes,
    network_spec,
    takes_blocks,
)
from gymlab.errors import ConfigError


def build(shape=(4,), *, is_image=False, distribution=None, **settings):
    return build_policy(shape, distribution or Categorical(3), is_image=is_image, **settings)


def test_default_is_two_tanh_trunks_of_64():
    network = build()
    assert [layer.weight.shape for layer in network.actor_trunk.layers] == [(64, 4), (64, 64)]
    assert network.actor_trunk.layers[0].weight is not network.critic_trunk.layers[0].weight
    assert isinstance(network.actor_trunk.activation, nn.Tanh)
    parameters, values = network(torch.zeros(5, 4))
    assert parameters.shape == (5, 3)
    assert values.shape == (5,)


def test_orthogonal_initialisation():
    network = build((64,))
    for layer, gain in (
        (network.actor_trunk.layers[1], math.sqrt(2)),
        (network.actor_head, 0.01),
        (network.critic_head, 1.0),
    ):
        weight = layer.weight.detach()
        square = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        np.testing.assert_allclose(square, gain**2 * np.eye(len(square)), atol=1e-5)
        assert torch.all(layer.bias == 0)


@pytest.mark.parametrize(
    ("shape", "settings"),
    [((64,), {}), ((4, 84, 84), {}), ((4, 84, 84), {"model_id": "cnn_impala"})],
    ids=["mlp", "cnn", "impala"],
)
def test_without_orthogonal_initialisation_layers_are_as_torch_draws_them(shape, settings):
    """Uniform within 1 / sqrt(inputs), biases too; a policy's head that torch drew is not small."""
    network = build(shape, is_image=len(shape) == 3, policy_kwargs={"ortho_init": False}, **settings)
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) > 3
    for layer in layers:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert 0.7 * bound < layer.weight.abs().max() <= bound
        assert torch.all(layer.bias.abs() <= bound)
        assert torch.any(layer.bias != 0)


def test_ortho_init_is_yes_or_no():
    with pytest.raises(ConfigError, match="ortho_init expects true or false, got 'no'"):
        build(policy_kwargs={"ortho_init": "no"})


def test_first_policy_is_near_uniform():
    parameters, _ = build()(torch.randn(100, 4))
    _, entropy = Categorical(3).log_prob_and_entropy(parameters, torch.zeros(100, dtype=torch.long))
    np.testing.assert_allclose(entropy.detach(), math.log(3), atol=1e-3)


@pytest.mark.parametrize("model_id", MODEL_IDS)
def test_model_ids(model_id):
    is_image = model_id.startswith("cnn")
    network = build((4, 84, 84) if is_image else (8,), is_image=is_image, model_id=model_id)
    assert network.spec.shared_trunk
    assert network.spec.activation == "relu"
    x = torch.zeros(2, 4, 84, 84, dtype=torch.uint8) if is_image else torch.zeros(2, 8)
    parameters, values = network(x)
    assert parameters.shape == (2, 3)
    assert values.shape == (2,)
    expected = {
        "mlp_tiny": 64,
        "mlp_small": 128,
        "mlp_medium": 256,
        "mlp_large": 512,
        "cnn_nature": 512,
        "cnn_impala": 256,
    }
    assert network.trunk.output_size == expected.get(model_id, 1024)


def test_nature_cnn_has_the_published_size():
    network = build((4, 84, 84), is_image=True)
    trunk = network.trunk
    assert [layer.weight.shape for layer in trunk.convolutions if isinstance(layer, nn.Conv2d)] == [
        (32, 4, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
    ]
    assert trunk.head.layers[0].weight.shape == (512, 64 * 7 * 7)


def test_images_are_scaled_once():
    """C7: a uint8 frame and the same frame scaled by hand give the same output."""
    network = build((3, 84, 84), is_image=True)
    frames = torch.randint(0, 256, (2, 3, 84, 84), dtype=torch.uint8)
    for a, b in zip(network(frames), network(frames.float() / 255), strict=True):
        torch.testing.assert_close(a, b)
    flat = build((3, 8, 8), is_image=True, policy="mlp")
    small = frames[:, :, :8, :8]
    torch.testing.assert_close(flat(small)[1], flat(small.float() / 255)[1])


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(8, 4, (84, 84)), (4, 4, (17, 30)), (4, 2, (11, 8)), (8, 8, (24, 25))]
)
def test_bytes_are_convolved_in_blocks_as_the_layer_would(kernel, stride, size):
    layer = nn.Conv2d(3, 5, kernel, stride)
    frames = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
    assert takes_blocks(layer)
    expected, outputs = layer(frames.float() / 255), convolve_bytes(layer, frames)
    torch.testing.assert_close(outputs, expected)
    slope = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, layer.parameters(), slope)
    for one, other in zip(torch.autograd.grad(outputs, layer.parameters(), slope), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(3, 5, 3, 2), nn.Conv2d(3, 5, 3), nn.Conv2d(3, 5, 4, 2, padding=1), nn.ReLU()]
)
def test_other_layers_take_no_blocks(layer):
    assert not takes_blocks(layer)


def test_gaussian_log_std_does_not_depend_on_the_observation():
    distribution = distribution_for(spaces.Box(-1, 1, (2,), np.float32))
    network = build((4,), distribution=distribution, policy_kwargs={"log_std_init": -1.0})
    parameters, _ = network(torch.randn(6, 4))
    assert parameters.shape == (6, 4)
    assert torch.all(parameters[:, 2:] == -1.0)


def test_settings_overrule_each_other_in_order():
    spec = network_spec(
        policy="mlp",
        model_id="mlp_medium",
        hidden_dims=(32,),
        activation="tanh",
        policy_kwargs={"activation": "elu", "shared_trunk": False},
        is_image=False,
    )
    assert (spec.hidden_dims, spec.activation, spec.shared_trunk) == ((32,), "elu", False)
    convolutions = {"channels": [8, 16], "kernel_sizes": [4, 3], "strides": [2, 1], "activation": "relu"}
    network = build((1, 20, 20), is_image=True, policy="cnn", policy_kwargs=convolutions)
    assert network.trunk.convolutions[0].weight.shape == (8, 1, 4, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_id": "mlp_smal"}, "mlp_small"),
        ({"policy": "mpl"}, "mlp"),
        ({"activation": "tahn"}, "tanh"),
        ({"policy_kwargs": {"chanels": [1]}}, "channels"),
        ({"policy": "cnn"}, "obs_type: rgb"),
        (
            {"policy_kwargs": {"channels": [1]}, "shape": (1, 84, 84), "is_image": True},
            "one entry for each convolution",
        ),
        ({"shape": (1, 8, 8), "is_image": True}, "too small"),
    ],
)
def test_mistakes_are_explained(settings, message):
    with pytest.raises(ConfigError, match=message):
        build(**settings)


def test_a_registered_class_of_the_users_own():
    from gymlab.config.targets import COMPONENTS

    class Tiny(nn.Module):
        def __init__(self, input_shape, distribution, width):
            super().__init__()
            self.body = nn.Linear(input_shape[0], width)
            self.out = nn.Linear(width, distribution.parameter_size + 1)

        def forward(self, x):
            out = self.out(self.body(x))
            return out[:, :-1], out[:, -1]

    COMPONENTS.register("tests.TinyPolicy")(Tiny)
    network = build((4,), policy="tests.TinyPolicy", policy_kwargs={"width": 7})
    assert not isinstance(network, ActorCritic)
    assert network.body.weight.shape == (7, 4)
