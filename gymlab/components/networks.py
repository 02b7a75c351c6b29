"""Networks by name: trunks that turn observations into features, and the actor-critic that sits on one or two of them.

separate trunks (default for vectors)          shared trunk (images, model ids)

obs -> actor_trunk  -> actor_head  -> logits    obs -> trunk -+-> actor_head  -> logits
obs -> critic_trunk -> critic_head -> value                   +-> critic_head -> value
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn

from gymlab.components.distributions import Distribution
from gymlab.errors import ConfigError, Unregistered, did_you_mean

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


@dataclass(frozen=True)
class NetworkSpec:
    """What an actor-critic is built from. Fields left at None take the default of the kind of trunk."""

    kind: Literal["mlp", "cnn"] = "mlp"
    hidden_dims: tuple[int, ...] | None = None
    """Widths of the fully connected layers (after the convolutions, if any): (64, 64) for mlp, (512,) for cnn."""
    activation: str | None = None
    """One of ACTIVATIONS: tanh for mlp, relu for cnn."""
    shared_trunk: bool | None = None
    """One trunk for actor and critic (cnn) or one each (mlp)."""
    channels: tuple[int, ...] = (32, 64, 64)
    kernel_sizes: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 1)
    residual: bool = False
    """IMPALA blocks (convolution, max-pool, two residual units) in place of plain convolutions."""
    log_std_init: float = 0.0
    """Where the log-std of continuous actions starts."""
    ortho_init: bool = True
    """Orthogonal weights (gain sqrt 2, of the policy's head 0.01, of the value's 1) and zero biases; false: as torch draws them."""

    def resolved(self) -> NetworkSpec:
        """The spec with every None replaced by its kind's default."""
        mlp = self.kind == "mlp"
        return replace(
            self,
            hidden_dims=self.hidden_dims if self.hidden_dims is not None else ((64, 64) if mlp else (512,)),
            activation=self.activation or ("tanh" if mlp else "relu"),
            shared_trunk=self.shared_trunk if self.shared_trunk is not None else not mlp,
        )


def _model(kind: Literal["mlp", "cnn"], *hidden_dims: int, **options: Any) -> NetworkSpec:
    return NetworkSpec(kind, hidden_dims=hidden_dims, activation="relu", shared_trunk=True, **options)


MODEL_IDS: dict[str, NetworkSpec] = {
    "mlp_tiny": _model("mlp", 64),
    "mlp_small": _model("mlp", 128, 128),
    "mlp_medium": _model("mlp", 256, 256),
    "mlp_large": _model("mlp", 512, 512),
    "cnn_nature": _model("cnn", 512),
    "cnn_impala": _model("cnn", 256, channels=(16, 32, 32), residual=True),
    "cnn_large": _model("cnn", 1024, channels=(32, 64, 128)),
}

POLICIES: dict[str, Literal["mlp", "cnn"]] = {
    "mlp": "mlp",
    "cnn": "cnn",
    "mlp_actorcritic": "mlp",
    "cnn_actorcritic": "cnn",
}


def build_policy(
    input_shape: tuple[int, ...],
    distribution: Distribution,
    *,
    is_image: bool,
    policy: str | None = None,
    model_id: str | None = None,
    hidden_dims: Sequence[int] | None = None,
    activation: str | None = None,
    policy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The policy network that the config's fields describe.

    A `policy` that is none of ours is a module class registered by a plugin: it is made with (input_shape,
    distribution, **policy_kwargs), and its forward gives the distribution's parameters [B, P] and the values [B].
    """
    options = dict(policy_kwargs or {})
    if policy is not None and policy not in POLICIES:
        from gymlab.config.targets import COMPONENTS

        if policy not in COMPONENTS:
            known = [*POLICIES, *COMPONENTS]
            raise Unregistered(
                f"policy: unknown {policy!r}. {did_you_mean(policy, known)} Known: {', '.join(POLICIES)}, "
                f"or a module class registered in a module given by --plugin."
            )
        return COMPONENTS.get(policy)(input_shape, distribution, **options)
    spec = network_spec(
        policy=policy,
        model_id=model_id,
        hidden_dims=hidden_dims,
        activation=activation,
        policy_kwargs=options,
        is_image=is_image,
    )
    return ActorCritic(input_shape, distribution, spec)


def network_spec(
    *,
    policy: str | None,
    model_id: str | None,
    hidden_dims: Sequence[int] | None,
    activation: str | None,
    policy_kwargs: Mapping[str, Any],
    is_image: bool,
) -> NetworkSpec:
    """The network that the config's fields describe: policy_kwargs go before hidden_dims and activation, they before model_id."""
    if model_id is not None and model_id not in MODEL_IDS:
        raise ConfigError(
            f"model_id: unknown {model_id!r}. {did_you_mean(model_id, MODEL_IDS)} Known: {', '.join(MODEL_IDS)}."
        )
    kind = POLICIES[policy] if policy is not None else ("cnn" if is_image else "mlp")
    spec = MODEL_IDS[model_id] if model_id is not None else NetworkSpec(kind)
    changes = dict(policy_kwargs)
    if hidden_dims is not None:
        changes.setdefault("hidden_dims", hidden_dims)
    if activation is not None:
        changes.setdefault("activation", activation)
    known = {option.name for option in fields(NetworkSpec)} - {"kind"}
    for name, value in changes.items():
        if name not in known:
            raise ConfigError(
                f"policy_kwargs: unknown {name!r}. {did_you_mean(name, known)} Known: {', '.join(sorted(known))}."
            )
        changes[name] = tuple(value) if isinstance(value, list | tuple) else value
    if not isinstance(changes.get("ortho_init", True), bool):
        raise ConfigError(f"policy_kwargs: ortho_init expects true or false, got {changes['ortho_init']!r}.")
    spec = replace(spec, **changes).resolved()
    _check(spec, is_image)
    return spec


def _check(spec: NetworkSpec, is_image: bool) -> None:
    if spec.activation not in ACTIVATIONS:
        hint = did_you_mean(str(spec.activation), ACTIVATIONS)
        raise ConfigError(f"activation: unknown {spec.activation!r}. {hint} Known: {', '.join(ACTIVATIONS)}.")
    if spec.kind == "cnn" and not is_image:
        raise ConfigError(
            "A cnn policy needs image observations, and this environment gives vectors: "
            "set policy: mlp, or obs_type: rgb to train on frames."
        )
    if not spec.residual and not len(spec.channels) == len(spec.kernel_sizes) == len(spec.strides):
        raise ConfigError(
            f"policy_kwargs: channels {spec.channels}, kernel_sizes {spec.kernel_sizes} and strides {spec.strides} "
            f"must have one entry for each convolution."
        )


class MLPTrunk(nn.Module):
    """Fully connected layers with an activation after each."""

    def __init__(
        self, input_size: int, hidden_dims: Sequence[int], activation: str, *, ortho_init: bool = True
    ) -> None:
        super().__init__()
        sizes = [input_size, *hidden_dims]
        self.layers = nn.ModuleList(
            initialised(nn.Linear(inputs, outputs), math.sqrt(2), ortho_init) for inputs, outputs in pairwise(sizes)
        )
        self.activation = ACTIVATIONS[activation]()
        self.output_size = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, output_size]; images are flattened and, when uint8, scaled to [0, 1]."""
        x = scale(x).flatten(1)
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


class CNNTrunk(nn.Module):
    """Convolutions, then an MLP trunk on what they see."""

    def __init__(self, input_shape: tuple[int, ...], spec: NetworkSpec) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise ConfigError(
                f"A cnn policy takes images (channels, height, width), and these observations are {input_shape}."
            )
        channels = input_shape[0]
        activation = str(spec.activation)
        layers = _impala(channels, spec) if spec.residual else _plain(channels, spec)
        self.convolutions = nn.Sequential(*layers)
        try:
            with torch.no_grad():
                size = self._see(torch.zeros(1, *input_shape)).numel()
        except RuntimeError as error:
            raise ConfigError(
                f"Images of {input_shape} (channels, height, width) are too small for these convolutions: "
                f"set resize_obs: [84, 84], or smaller kernel_sizes and strides in policy_kwargs."
            ) from error
        self.head = MLPTrunk(size, spec.hidden_dims or (), activation, ortho_init=spec.ortho_init)
        self.output_size = self.head.output_size

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, output_size]."""
        return self.head(self._see(x))

    def _see(self, x: Tensor) -> Tensor:
        first, *others = self.convolutions
        if x.dtype == torch.uint8 and x.device.type == "cpu" and takes_blocks(first):
            x = convolve_bytes(first, x)
            for layer in others:
                x = layer(x)
            return x
        # Convolutions on the CPU run about 1.6 times as fast on memory with channels last; bytes get there in one pass.
        if x.dtype == torch.uint8:
            x = x.to(torch.float32, memory_format=torch.channels_last).mul_(1 / 255)
        return self.convolutions(x.contiguous(memory_format=torch.channels_last))


WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Type that holds as many bytes."""


def takes_blocks(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a convolution's kernel is a grid of squares as large as its stride, which can be moved as words."""
    if not isinstance(layer, nn.Conv2d) or layer.padding != (0, 0) or layer.kernel_size[0] != layer.kernel_size[1]:
        return False
    kernel, stride = layer.kernel_size[0], layer.stride[0]
    return layer.stride == (stride, stride) and stride in WORDS and kernel % stride == 0


def convolve_bytes(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """`layer(x / 255)` for bytes [B, C, H, W], with the gradient of its weights a third faster on the CPU.

    Each square of stride x stride pixels becomes the channels of one pixel, and the kernel steps by one: many channels
    are what the CPU's convolutions are good at. The bytes are moved before they are made floats, a quarter of the memory.
    """
    batch, channels, *size = x.shape
    kernel, stride = layer.kernel_size[0], layer.stride[0]
    cells = kernel // stride
    rows, columns = ((length - kernel) // stride + cells for length in size)
    words = x[:, :, : rows * stride, : columns * stride].contiguous().view(WORDS[stride])
    squares = words.view(batch, channels, rows, stride, columns).permute(0, 2, 4, 1, 3).contiguous().view(torch.uint8)
    pixels = squares.view(batch, rows, columns, channels * stride * stride).permute(0, 3, 1, 2).float()
    weight = layer.weight.reshape(-1, channels, cells, stride, cells, stride).permute(0, 2, 4, 1, 3, 5)
    weight = weight.reshape(-1, cells, cells, channels * stride * stride).permute(0, 3, 1, 2)
    return nn.functional.conv2d(pixels, weight * (1 / 255), layer.bias)


def _plain(channels: int, spec: NetworkSpec) -> Iterator[nn.Module]:
    for outputs, kernel, stride in zip(spec.channels, spec.kernel_sizes, spec.strides, strict=True):
        yield initialised(nn.Conv2d(channels, outputs, kernel, stride), math.sqrt(2), spec.ortho_init)
        # Nobody else reads what the convolution wrote, so the activation may write over it.
        yield nn.ReLU(inplace=True) if spec.activation == "relu" else ACTIVATIONS[str(spec.activation)]()
        channels = outputs


def _impala(channels: int, spec: NetworkSpec) -> Iterator[nn.Module]:
    activation = str(spec.activation)
    for width in spec.channels:
        yield initialised(nn.Conv2d(channels, width, 3, padding=1), math.sqrt(2), spec.ortho_init)
        yield nn.MaxPool2d(3, 2, padding=1)
        yield ResidualUnit(width, activation, spec.ortho_init)
        yield ResidualUnit(width, activation, spec.ortho_init)
        channels = width
    yield ACTIVATIONS[activation]()


class ResidualUnit(nn.Module):
    """x + conv(act(conv(act(x)))) (Espeholt et al. 2018, figure 3)."""

    def __init__(self, channels: int, activation: str, ortho_init: bool) -> None:
        super().__init__()
        self.first = initialised(nn.Conv2d(channels, channels, 3, padding=1), math.sqrt(2), ortho_init)
        self.second = initialised(nn.Conv2d(channels, channels, 3, padding=1), math.sqrt(2), ortho_init)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        return x + self.second(self.activation(self.first(self.activation(x))))


class ActorCritic(nn.Module):
    """Policy and value function. `forward` gives the parameters of the action distribution and the values."""

    def __init__(self, input_shape: tuple[int, ...], distribution: Distribution, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        if spec.shared_trunk:
            self.trunk = build_trunk(input_shape, spec)
        else:
            self.actor_trunk = build_trunk(input_shape, spec)
            self.critic_trunk = build_trunk(input_shape, spec)
        width = self.trunks[0].output_size
        # A small policy head makes the first policy near uniform: exploration does not hang on the draw of the weights.
        self.actor_head = initialised(nn.Linear(width, distribution.head_size), 0.01, spec.ortho_init)
        self.critic_head = initialised(nn.Linear(width, 1), 1.0, spec.ortho_init)
        free = torch.full((distribution.free_size,), float(spec.log_std_init))
        self.log_std = nn.Parameter(free) if distribution.free_size else None

    @property
    def trunks(self) -> list[Any]:
        """The shared trunk, or the actor's and the critic's."""
        return [self.trunk] if self.spec.shared_trunk else [self.actor_trunk, self.critic_trunk]

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """[B, ...] -> distribution parameters [B, P], values [B]."""
        features = [trunk(observation) for trunk in self.trunks]
        parameters = self.actor_head(features[0])
        if self.log_std is not None:
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], dim=-1)
        return parameters, self.critic_head(features[-1]).squeeze(-1)

    def parameter_order(self) -> list[str]:
        """Parameter names for one flat vector: trunks first with equal layers of both side by side, then the heads.

        Side by side, layer l of two trunks is one [2, out, in] array: both go through each matrix product in one call.
        """
        names = [name for name, _ in self.named_parameters()]
        if self.spec.shared_trunk:
            trunk = [name for name in names if name.startswith("trunk.")]
        else:
            actor = [name for name in names if name.startswith("actor_trunk.")]
            critic = [name for name in names if name.startswith("critic_trunk.")]
            trunk = [name for pair in zip(actor, critic, strict=True) for name in pair]
        heads = [name for name in names if name == "log_std" or name.startswith(("actor_head.", "critic_head."))]
        return [*trunk, *heads]


def build_trunk(input_shape: tuple[int, ...], spec: NetworkSpec) -> MLPTrunk | CNNTrunk:
    """A trunk of the spec's kind for observations of `input_shape`."""
    if spec.kind == "cnn":
        return CNNTrunk(input_shape, spec)
    return MLPTrunk(math.prod(input_shape), spec.hidden_dims or (), str(spec.activation), ortho_init=spec.ortho_init)


def scale(x: Tensor) -> Tensor:
    """uint8 images as floats in [0, 1]; anything else as it is."""
    return x.float().mul_(1 / 255) if x.dtype == torch.uint8 else x


def initialised(layer: Any, gain: float, ortho_init: bool) -> Any:
    """The layer with orthogonal weights times `gain` and zero biases, or as torch has drawn it."""
    if ortho_init:
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return layer
