"""The networks of TD-MPC2 (Hansen et al. 2024): a latent of small softmaxes, and everything that is predicted from it.

Those of TD-MPC (2022), `v1`, are plainer: a free latent, ELU in place of norm and Mish, scalars as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.mish_layers import MishLayer, SplitLayer
from gymlab.components.symlog import TwoHot, UnitNormal
from gymlab.components.tdmpc_config import TDMPC2Config
from gymlab.errors import ConfigError

Version = Literal["v1", "v2"]


class SimNorm(nn.Module):
    """Softmax over groups of `group` features: a latent that can neither explode nor collapse.

    In memory the members of a group stand apart, [..., group, groups]: a softmax over a few neighbouring numbers takes twenty times
    as long as one over rows, and no layer before or behind cares for the order.
    """

    def __init__(self, size: int, group: int = 8) -> None:
        super().__init__()
        if size % group:
            raise ConfigError(f"latent: {size} cannot be cut into groups of {group}. Set a multiple of {group}.")
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        return x.unflatten(-1, (self.group, -1)).softmax(-2).flatten(-2)


class PlainLayer(SplitLayer):
    """A linear layer with ELU, or with LayerNorm and tanh (TD-MPC)."""

    def __init__(self, in_features: int, out_features: int, *, normed: bool = False) -> None:
        super().__init__(in_features, out_features)
        self.norm = nn.LayerNorm(out_features) if normed else None

    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """[..., in_features] -> [..., out_features]; with a base, the last features alone."""
        weight, bias = self.weight_and_bias(x, base)
        hidden = functional.linear(x, weight) + bias
        return functional.elu(hidden) if self.norm is None else self.norm(hidden).tanh()


def layers(sizes: Sequence[int], version: Version, *, dropout: float = 0.0, normed: bool = False) -> list[nn.Module]:
    """A hidden layer for each step from size to size; dropout (v2) or a norm (v1) in the first."""
    steps = list(enumerate(itertools.pairwise(sizes)))
    if version == "v1":
        return [PlainLayer(*pair, normed=normed and number == 0) for number, pair in steps]
    return [MishLayer(*pair, 0.0 if number else dropout) for number, pair in steps]


class Predictor(nn.Sequential):
    """Two hidden layers and a plain one, which begins at 0 with `zero` (in v2 its weights alone)."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        version: Version = "v2",
        *,
        dropout: float = 0.0,
        normed: bool = False,
        zero: bool = False,
    ) -> None:
        hidden_layers = layers([inputs, hidden, hidden], version, dropout=dropout, normed=normed)
        last = nn.Linear(hidden, outputs)
        super().__init__(*hidden_layers, last)
        initialize(self, version)
        if zero:
            nn.init.zeros_(last.weight)


def base_of(network: nn.Sequential, first: Tensor) -> Tensor:
    """What the first features of an input come to in a network's first layer: for inputs of which only the rest changes."""
    layer: Any = network[0]
    base: Tensor = layer.base(first)
    return base


def behind(network: nn.Sequential, base: Tensor, rest: Tensor) -> Tensor:
    """The same as of the whole input, from what its first features came to, [hidden] or [N, hidden], and the others, [N, ...]."""
    hidden, *others = network
    x: Tensor = hidden(rest, base)
    for layer in others:
        x = layer(x)
    return x


def initialize(module: nn.Module, version: Version) -> None:
    """Weights as the authors begin with: orthogonal (v1), truncated normal of deviation 0.02 in linear layers alone (v2); biases 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            if version == "v1":
                nn.init.orthogonal_(part.weight)
            else:
                nn.init.trunc_normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Conv2d) and version == "v1":
            nn.init.orthogonal_(part.weight, nn.init.calculate_gain("relu"))
            assert part.bias is not None
            nn.init.zeros_(part.bias)


def latent_layers(inputs: int, config: TDMPC2Config) -> list[nn.Module]:
    """The last layer of what gives a latent; in v2 it is normed and cut into softmaxes."""
    linear, latent = nn.Linear(inputs, config.latent), config.latent
    return [linear] if config.version == "v1" else [linear, nn.LayerNorm(latent), SimNorm(latent, config.simnorm_group)]


class VectorEncoder(nn.Sequential):
    """A vector to a latent."""

    def __init__(self, inputs: int, config: TDMPC2Config) -> None:
        sizes = [inputs] + [config.encoder_hidden] * config.encoder_layers
        super().__init__(*layers(sizes, config.version), *latent_layers(sizes[-1], config))
        initialize(self, config.version)


class GroupsApart(nn.Module):
    """Puts numbers of which neighbours make a group, as a flattened feature map has them, where `SimNorm` looks for them."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        return x.unflatten(-1, (-1, self.group)).transpose(-1, -2).flatten(-2)


class PictureEncoder(nn.Module):
    """Pictures of 64 pixels (v1: 84) to a latent; in v2 nothing lies between the last convolution and the softmaxes."""

    KERNELS: ClassVar[dict[str, tuple[tuple[int, int], ...]]] = {
        "v1": ((7, 2), (5, 2), (3, 2), (3, 2)),
        "v2": ((7, 2), (5, 2), (3, 2), (3, 1)),
    }
    """Side and stride of each convolution."""

    def __init__(self, shape: tuple[int, ...], config: TDMPC2Config) -> None:
        super().__init__()
        first, kernels = config.version == "v1", self.KERNELS[config.version]
        self.pad = shape[1] // 21 if first else 3
        """Pixels that a picture is moved by at most."""
        self.middle = 0.0 if first else 0.5
        """Brightness that counts as 0."""
        inputs = [shape[0]] + [config.encoder_channels] * len(kernels)
        parts: list[nn.Module] = []
        for (before, after), (kernel, stride) in zip(itertools.pairwise(inputs), kernels, strict=True):
            parts += [nn.Conv2d(before, after, kernel, stride), nn.ReLU()]
        places = math.prod(_side_after(side, kernels) for side in shape[1:])
        flat = places * config.encoder_channels
        if first:
            parts += [nn.Flatten(), nn.Linear(flat, config.latent)]
        else:
            _check_latent(shape, places, config)
            group = config.simnorm_group
            parts[-1:] = [nn.Flatten(), GroupsApart(group), SimNorm(flat, group)]
        self.layers = nn.Sequential(*parts)
        initialize(self, config.version)

    def forward(self, pictures: Tensor) -> Tensor:
        """[N, C, H, W] bytes -> [N, latent]."""
        x = pictures / 255
        value: Tensor = self.layers(x.sub_(self.middle) if self.middle else x)
        return value

    def shifted(self, pictures: Tensor, generator: np.random.Generator | None = None) -> Tensor:
        """Each picture moved by up to `pad` pixels, its edges repeated (Kostrikov et al. 2020); without a generator by torch's numbers."""
        count, channels, height, width = pictures.shape
        if generator is None:
            offsets = torch.randint(-self.pad, self.pad + 1, (2, count, 1), device=pictures.device)
        else:
            drawn = generator.integers(-self.pad, self.pad, (2, count, 1), endpoint=True)
            offsets = torch.from_numpy(drawn).to(pictures.device)
        rows, columns = (
            (torch.arange(side, device=pictures.device) + offset).clamp_(0, side - 1)
            for side, offset in zip((height, width), offsets, strict=True)
        )
        pixels = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1)  # [N, H W]
        index = pixels.unsqueeze(1).expand(-1, channels, -1)
        return pictures.flatten(2).gather(2, index).unflatten(2, (height, width))


def _side_after(side: int, kernels: Sequence[tuple[int, int]]) -> int:
    """Pixels of a side that are left behind convolutions."""
    left = side
    for kernel, stride in kernels:
        left = (left - kernel) // stride + 1
        if left < 1:
            raise ConfigError(
                f"Pictures with a side of {side} pixels are too small for tdmpc. Set resize_obs: [64, 64]."
            )
    return left


def _check_latent(shape: tuple[int, ...], places: int, config: TDMPC2Config) -> None:
    """The convolutions' features are the latent: their number must be the same."""
    latent, channels = config.latent, config.encoder_channels
    if latent == places * channels:
        return
    fewer = f" or encoder_channels: {latent // places}" if latent % places == 0 else ""
    raise ConfigError(
        f"latent: pictures of {shape[1]}x{shape[2]} pixels come to {channels} channels of {places} places, which are "
        f"{places * channels} numbers, and latent is {latent}. Set latent: {places * channels}{fewer}."
    )


class LatentModel(nn.Module):
    """Encoder, dynamics, reward, termination, and an ensemble of action values, all on one latent."""

    gamma: Tensor

    def __init__(self, config: TDMPC2Config, shapes: Mapping[str, tuple[int, ...]], action: int, gamma: float) -> None:
        super().__init__()
        if len(shapes) != 1:
            raise ConfigError(
                f"tdmpc observes one vector or one picture, and this environment shows {', '.join(shapes)}. A wrapper can choose one."
            )
        ((self.key, shape),) = shapes.items()
        version, latent, hidden = config.version, config.latent, config.hidden
        self.encoder: nn.Module = PictureEncoder(shape, config) if len(shape) == 3 else VectorEncoder(shape[0], config)
        self.scalar = UnitNormal() if version == "v1" else TwoHot(config.bins, config.bin_reach, "symlog")
        joint, numbers = latent + action, self.scalar.size
        self.dynamics = nn.Sequential(*layers([joint, hidden, hidden], version), *latent_layers(hidden, config))
        initialize(self.dynamics, version)
        self.reward = Predictor(joint, hidden, numbers, version, zero=True)
        self.end = Predictor(latent, hidden, 1, version) if config.episodic else None
        self.qs = nn.ModuleList(
            Predictor(joint, hidden, numbers, version, dropout=config.dropout, normed=True, zero=True)
            for _ in range(config.q_count)
        )
        # Of the task, not of the program: an agent that is loaded plans with the discount that it learned with.
        self.register_buffer("gamma", torch.tensor(gamma))

    def augmented(self, observations: Tensor, generator: np.random.Generator | None = None) -> Tensor:
        """Pictures [..., C, H, W] each moved about by a few pixels; vectors as they are."""
        if not isinstance(self.encoder, PictureEncoder):
            return observations
        pictures = observations.reshape(-1, *observations.shape[-3:])
        return self.encoder.shifted(pictures, generator).view(observations.shape)

    def next(self, latent: Tensor, action: Tensor) -> Tensor:
        """The latent after an action."""
        value: Tensor = self.dynamics(torch.cat([latent, action], -1))
        return value

    def imagined(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The expected reward [...] of an action, and the latent after it."""
        joint = torch.cat([latent, action], -1)
        return self.scalar.mean(self.reward(joint)), self.dynamics(joint)

    def bases(self, latent: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """For `imagined_from`: what latents [N, L] come to in the reward and the dynamics, for `count` actions each."""
        reward, dynamics = (base_of(network, latent) for network in (self.reward, self.dynamics))
        if len(latent) == 1:
            return reward[0], dynamics[0]
        return reward.repeat_interleave(count, 0), dynamics.repeat_interleave(count, 0)

    def imagined_from(self, bases: tuple[Tensor, Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """As `imagined`, many actions [N count, A] from the same latents."""
        of_reward, of_dynamics = bases
        return self.scalar.mean(behind(self.reward, of_reward, action)), behind(self.dynamics, of_dynamics, action)

    def continues(self, latent: Tensor) -> Tensor | float:
        """[...] 0 where a termination is more likely than not, else 1; 1 where none is learned."""
        # sigmoid(x) > 0.5 where x > 0.
        return 1.0 if self.end is None else (self.end(latent).squeeze(-1) <= 0).float()


def values(qs: Sequence[nn.Module], scalar: TwoHot | UnitNormal, latent: Tensor, action: Tensor) -> Tensor:
    """What each of the given networks expects of an action, [Q, ...]."""
    joint = torch.cat([latent, action], -1)
    return torch.stack([scalar.mean(q(joint)) for q in qs])


def values_of_actions(
    qs: Sequence[nn.Sequential], scalar: TwoHot | UnitNormal, latent: Tensor, action: Tensor
) -> Tensor:
    """The same, with gradients of the actions alone."""
    shape, flat, rows = action.shape[:-1], action.flatten(0, -2), latent.flatten(0, -2)
    with torch.no_grad():
        bases = [base_of(q, rows) for q in qs]
    found = [scalar.mean(behind(q, base, flat)) for q, base in zip(qs, bases, strict=True)]
    return torch.stack(found).unflatten(1, shape)


class RunningScale(nn.Module):
    """The range of values from their 5th to their 95th percentile, at least 1, as a moving average that begins at 1."""

    value: Tensor

    def __init__(self, rate: float = 0.01) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("value", torch.ones(()))

    @torch.no_grad()
    def update(self, values: Tensor) -> Tensor:
        """Take in a batch of values; gives the scale."""
        low, high = torch.quantile(values.detach().flatten(), values.new_tensor([0.05, 0.95])).unbind(0)
        self.value.lerp_((high - low).clamp(min=1.0), self.rate)
        return self.value.clone()
