"""The networks of TD-MPC2 (Hansen et al. 2024): a latent of small softmaxes, and everything that is predicted from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.symlog import TwoHot
from gymlab.components.tdmpc_config import TDMPCConfig
from gymlab.errors import ConfigError

EXP_LIMIT = 20.0
"""Above it the slope of mish is 1 to all digits, and its parts are still numbers."""


class _Mish(torch.autograd.Function):
    """x tanh(softplus(x)) = x - 2 x / d with d = (e^x + 1)^2 + 1: one exponential, where torch takes three functions a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The value; a very large x gives an infinite d, and itself."""
        ctx.save_for_backward(x)
        return torch.addcdiv(x, x, x.exp().add_(1).square_().add_(1), value=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """1 - 2 / d + 4 x e^x (e^x + 1) / d^2."""
        (x,) = ctx.saved_tensors
        e = x.clamp(max=EXP_LIMIT).exp_()
        s = e + 1
        inverse = s.square().add_(1).reciprocal_()
        rise = e.mul_(s).mul_(x).mul_(inverse).mul_(4).sub_(2)
        return rise.mul_(inverse).add_(1).mul_(gradients[0])


class Mish(nn.Module):
    """As torch's, five times as quick on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        value: Tensor = _Mish.apply(x)
        return value


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


def layers(sizes: Sequence[int], *, dropout: float = 0.0) -> list[nn.Module]:
    """Linear, LayerNorm and Mish for each step from size to size; dropout behind the first matrix."""
    made: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        made.append(nn.Linear(inputs, outputs))
        if dropout and number == 0:
            made.append(nn.Dropout(dropout))
        made += [nn.LayerNorm(outputs), Mish()]
    return made


def predictor(inputs: int, hidden: int, outputs: int, *, dropout: float = 0.0, zero: bool = False) -> nn.Sequential:
    """Two hidden layers and a plain one, whose weights begin at 0 with `zero`."""
    network = nn.Sequential(*layers([inputs, hidden, hidden], dropout=dropout), nn.Linear(hidden, outputs))
    initialize(network)
    if zero:
        nn.init.zeros_(network[-1].weight)  # type: ignore[arg-type]
    return network


def initialize(module: nn.Module) -> None:
    """Truncated normal weights of deviation 0.02 and zero biases, as the authors begin."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)


class VectorEncoder(nn.Sequential):
    """A vector to a latent."""

    def __init__(self, inputs: int, hidden: int, hidden_layers: int, latent: int, group: int) -> None:
        sizes = [inputs] + [hidden] * hidden_layers
        last = [nn.Linear(sizes[-1], latent), nn.LayerNorm(latent), SimNorm(latent, group)]
        super().__init__(*layers(sizes), *last)
        initialize(self)


class PictureEncoder(nn.Module):
    """Pictures of 64 pixels to a latent, moved about by up to three pixels while learning (Kostrikov et al. 2020)."""

    PAD = 3

    def __init__(self, shape: tuple[int, ...], channels: int, latent: int, group: int) -> None:
        super().__init__()
        kernels = ((7, 2), (5, 2), (3, 2), (3, 1))
        inputs = [shape[0]] + [channels] * len(kernels)
        convolutions: list[nn.Module] = []
        for (before, after), (kernel, stride) in zip(itertools.pairwise(inputs), kernels, strict=True):
            convolutions += [nn.Conv2d(before, after, kernel, stride), nn.ReLU()]
        self.convolutions = nn.Sequential(*convolutions[:-1], nn.Flatten())
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, *shape)).shape[1]
        self.out = nn.Sequential(nn.Linear(flat, latent), nn.LayerNorm(latent), SimNorm(latent, group))
        initialize(self.out)

    def forward(self, pictures: Tensor) -> Tensor:
        """[N, C, H, W] bytes -> [N, latent]."""
        x = pictures.float() / 255 - 0.5
        value: Tensor = self.out(self.convolutions(self._moved(x) if self.training else x))
        return value

    def _moved(self, x: Tensor) -> Tensor:
        """Each picture cut out of itself with repeated edges, at a place of its own."""
        count, _, height, width = x.shape
        padded = functional.pad(x, (self.PAD,) * 4, mode="replicate")
        down, right = torch.randint(2 * self.PAD + 1, (2, count, 1), device=x.device)
        rows = (down + torch.arange(height, device=x.device))[:, None, :, None]
        columns = (right + torch.arange(width, device=x.device))[:, None, None, :]
        return padded[
            torch.arange(count, device=x.device)[:, None, None, None],
            torch.arange(x.shape[1], device=x.device)[None, :, None, None],
            rows,
            columns,
        ]


class LatentModel(nn.Module):
    """Encoder, dynamics, reward, ends, and an ensemble of action values, all on one latent."""

    gamma: Tensor

    def __init__(self, config: TDMPCConfig, shapes: Mapping[str, tuple[int, ...]], action: int, gamma: float) -> None:
        super().__init__()
        if len(shapes) != 1:
            raise ConfigError(
                f"tdmpc observes one vector or one picture, and this environment shows {', '.join(shapes)}. A wrapper can choose one."
            )
        ((self.key, shape),) = shapes.items()
        latent, group, hidden, bins = config.latent, config.simnorm_group, config.hidden, config.bins
        self.encoder: nn.Module = (
            PictureEncoder(shape, config.encoder_channels, latent, group)
            if len(shape) == 3
            else VectorEncoder(shape[0], config.encoder_hidden, config.encoder_layers, latent, group)
        )
        self.scalar = TwoHot(bins, config.bin_reach, "symlog")
        joint = latent + action
        last = [nn.Linear(hidden, latent), nn.LayerNorm(latent), SimNorm(latent, group)]
        self.dynamics = nn.Sequential(*layers([joint, hidden, hidden]), *last)
        initialize(self.dynamics)
        self.reward = predictor(joint, hidden, bins, zero=True)
        self.end = predictor(latent, hidden, 1) if config.episodic else None
        self.qs = nn.ModuleList(
            predictor(joint, hidden, bins, dropout=config.dropout, zero=True) for _ in range(config.q_count)
        )
        # Of the task, not of the program: an agent that is loaded plans with the discount that it learned with.
        self.register_buffer("gamma", torch.tensor(gamma))

    def next(self, latent: Tensor, action: Tensor) -> Tensor:
        """The latent after an action."""
        value: Tensor = self.dynamics(torch.cat([latent, action], -1))
        return value

    def imagined(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The expected reward [...] of an action, and the latent after it."""
        joint = torch.cat([latent, action], -1)
        return self.scalar.mean(self.reward(joint)), self.dynamics(joint)

    def going_on(self, latent: Tensor) -> Tensor | float:
        """Probability that the episode goes on from a latent, [...]; 1 where nothing ever ends it."""
        return 1.0 if self.end is None else torch.sigmoid(-self.end(latent).squeeze(-1))


def values(qs: Sequence[nn.Module], scalar: TwoHot, latent: Tensor, action: Tensor) -> Tensor:
    """What each of the given networks expects of an action, [Q, ...]."""
    joint = torch.cat([latent, action], -1)
    return torch.stack([scalar.mean(q(joint)) for q in qs])


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
