"""The networks of Dreamer: what goes into the recurrent model, and what is read off its states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.discrete_parts import DiscreteParts, MixedVector
from gymlab.components.dreamer_config import DreamerConfig
from gymlab.components.image_codecs import image_decoder, image_encoder
from gymlab.components.keras_adam import KerasAdam
from gymlab.components.keras_layers import keras_start
from gymlab.components.laprop import LaProp
from gymlab.components.latents import CategoricalLatent, GaussianLatent, Latent
from gymlab.components.normed_layers import NormSiLU, normed_linear
from gymlab.components.observation_parts import VECTOR
from gymlab.components.rssm import RSSM, BlockGRU, Cell, KerasGRU, NormedGRU, State
from gymlab.components.symlog import TwoHot, UnitNormal, symexp, symlog
from gymlab.errors import ConfigError, did_you_mean

Shapes = Mapping[str, tuple[int, ...]]
"""What is observed: images [C, H, W] by name, and the vector [V]."""


class MLP(nn.Module):
    """Hidden layers and a linear output; v3's are normalised, those of v1 and v2 are not."""

    def __init__(
        self, inputs: int, units: int, layers: int, outputs: int | None, *, normed: bool, output_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            hidden = linear(inputs, units, normed=normed)
            self.layers += [hidden, NormSiLU(units)] if normed else [hidden, nn.ELU()]
            inputs = units
        if outputs is not None:
            self.layers.append(linear(inputs, outputs, normed=normed, scale=output_scale))

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return self.after_first(self.layers[0](x))

    def after_first(self, x: Tensor) -> Tensor:
        """[..., units] that the first layer's matrix gave -> [..., outputs]."""
        for layer in self.layers[1:]:
            x = layer(x)
        return x


class SideBySide:
    """Networks that read the same features, with one product for all their first layers: by themselves these take half as long again."""

    def __init__(self, networks: Mapping[str, MLP]) -> None:
        self.networks = networks
        first: list[Any] = [network.layers[0] for network in networks.values()]
        self.weight = torch.cat([layer.weight.t() for layer in first], -1)
        self.bias = torch.cat([layer.bias for layer in first])
        self.widths = [layer.out_features for layer in first]

    def __call__(self, features: Tensor) -> dict[str, Tensor]:
        """[N, F] -> the outputs by name."""
        first = torch.addmm(self.bias, features, self.weight).split(self.widths, -1)
        return {name: network.after_first(x) for (name, network), x in zip(self.networks.items(), first, strict=True)}


def linear(inputs: int, outputs: int, *, normed: bool, scale: float = 1.0) -> nn.Linear:
    """A layer initialised as the authors of its version do."""
    if normed:
        return normed_linear(inputs, outputs, scale)
    return keras_start(nn.Linear(inputs, outputs))


class ScalarHead(nn.Module):
    """A number read off the features. It begins as exactly 0 with bins, since its last layer does."""

    def __init__(self, config: DreamerConfig, inputs: int, layers: int) -> None:
        super().__init__()
        normed = config.version == "v3"
        self.scalar = TwoHot() if config.scalars == "two_hot" else UnitNormal()
        scale = 0.0 if config.scalars == "two_hot" else 1.0
        self.trunk = MLP(inputs, config.units, layers, None, normed=normed)
        self.output = linear(config.units, self.scalar.size, normed=normed, scale=scale)

    def mean(self, features: Tensor) -> Tensor:
        """[..., F] -> [...], differentiable."""
        return self.read(self.trunk(features))

    def read(self, hidden: Tensor) -> Tensor:
        """[..., F'] from the trunk -> [...], differentiable."""
        return self.scalar.mean(self.output(hidden))

    def value(self, hidden: Tensor) -> Tensor:
        """[..., F'] from the trunk -> [...], without gradients."""
        return self.scalar.behind(self.output, hidden)

    def loss(self, hidden: Tensor, targets: Sequence[Tensor], weight: Tensor) -> Tensor:
        """[..., F'] from the trunk and targets [...] -> the mean loss, each row with its weight [...]."""
        return self.scalar.loss_behind(self.output, hidden, targets, weight)


class Encoder(nn.Module):
    """Images through convolutions, vectors through layers; side by side, [N, size]."""

    def __init__(self, config: DreamerConfig, shapes: Shapes, mixed: MixedVector | None = None) -> None:
        super().__init__()
        self.normed = config.version == "v3"
        self.mixed = mixed
        encoders = {
            key: image_encoder(config.version, shape, config.cnn_depth) for key, shape in images(shapes).items()
        }
        self.images = nn.ModuleDict(encoders)
        self.size = sum(encoder.size for encoder in encoders.values())
        self.vector: MLP | None = None
        if VECTOR in shapes:
            self.vector = MLP(shapes[VECTOR][0], config.units, config.vector_layers, None, normed=self.normed)
            self.size += config.units

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """[N, ...] each -> [N, size]."""
        parts = [encoder(observations[key]) for key, encoder in self.images.items()]
        if self.vector is not None:
            x = observations[VECTOR]
            if self.mixed is not None:
                x = self.mixed.seen(x)
            elif self.normed:
                x = symlog(x)
            parts.append(self.vector(x))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class Decoder(nn.Module):
    """What the states say about observations."""

    def __init__(
        self, config: DreamerConfig, shapes: Shapes, deter: int, stoch: int, mixed: MixedVector | None = None
    ) -> None:
        super().__init__()
        self.normed = config.version == "v3"
        self.mixed = mixed
        self.images = nn.ModuleDict(
            {
                key: image_decoder(config.version, shape, config.cnn_depth, deter, stoch, config.units)
                for key, shape in images(shapes).items()
            }
        )
        self.vector: MLP | None = None
        if VECTOR in shapes:
            self.vector = MLP(deter + stoch, config.units, config.vector_layers, shapes[VECTOR][0], normed=self.normed)

    def _image_decoders(self) -> Iterator[tuple[str, Any]]:
        """Decoders of images by key; a ModuleDict knows them as modules only."""
        yield from self.images.items()

    def losses(self, state: State, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """For each key the loss of each state, [N], summed over pixels and dimensions: squared errors, cross-entropy of discrete parts."""
        losses = {
            key: decoder.loss(state.deter, state.stoch, observations[key]) for key, decoder in self._image_decoders()
        }
        if self.vector is not None:
            predicted, target = self.vector(state.features).float(), observations[VECTOR]
            if self.mixed is not None:
                losses[VECTOR] = self.mixed.loss(predicted, target)
            elif self.normed:
                losses[VECTOR] = functional.mse_loss(predicted, symlog(target), reduction="none").sum(-1)
            else:
                losses[VECTOR] = 0.5 * functional.mse_loss(predicted, target, reduction="none").sum(-1)
        return losses

    def forward(self, state: State) -> dict[str, Tensor]:
        """Expected observations in their own units: images 0..255, vectors as they are, probabilities for one-hots."""
        expected = {key: decoder.pixels(decoder(state.deter, state.stoch)) for key, decoder in self._image_decoders()}
        if self.vector is not None:
            predicted = self.vector(state.features)
            if self.mixed is not None:
                expected[VECTOR] = self.mixed.expected(predicted)
            else:
                expected[VECTOR] = symexp(predicted) if self.normed else predicted
        return expected


class WorldModel(nn.Module):
    """Encoder, recurrent model, and the heads that its states are trained by."""

    def __init__(
        self, config: DreamerConfig, shapes: Shapes, action: int, discrete: DiscreteParts | None = None
    ) -> None:
        super().__init__()
        latent = make_latent(config)
        normed = config.version == "v3"
        as_choices = bool(discrete) and config.discrete_obs == "categorical"
        mixed = MixedVector(shapes[VECTOR][0], discrete) if discrete is not None and as_choices else None
        self.encoder = Encoder(config, shapes, mixed)
        self.rssm = RSSM(
            make_cell(config, latent.size, action),
            latent,
            self.encoder.size,
            config.hidden,
            prior_layers=config.prior_layers,
            normed=normed,
        )
        self.features = config.deter + latent.size
        self.decoder = Decoder(config, shapes, config.deter, latent.size, mixed)
        self.reward = ScalarHead(config, self.features, config.reward_layers)
        self.going_on: MLP | None = None
        if config.continue_scale:
            self.going_on = MLP(self.features, config.units, config.continue_layers, 1, normed=normed)


def make_actor(config: DreamerConfig, features: int, outputs: int, *, continuous: bool) -> MLP:
    """The policy; v3's begins with nearly equal chances."""
    normed = config.version == "v3"
    scale = 0.01 if normed else 1.0
    actor = MLP(features, config.units, config.actor_layers, outputs, normed=normed, output_scale=scale)
    if config.version == "v2" and continuous:
        # Means and deviations are two layers in the authors' program, each with half the outputs.
        last: Any = actor.layers[-1]
        for half in last.weight.detach().chunk(2):
            nn.init.xavier_uniform_(half)
    return actor


def make_optimizers(
    config: DreamerConfig, model: nn.Module, critic: nn.Module, actor: nn.Module, named: Mapping[str, Any]
) -> dict[str, torch.optim.Optimizer]:
    """One for everything, or one each; `named` ones of the experiment instead, where given. Rates are set before every step."""
    parts = {"model": list(model.parameters()), "critic": list(critic.parameters()), "actor": list(actor.parameters())}
    if config.optimizer == "laprop":
        parts = {"all": [p for part in parts.values() for p in part]}
    for name in named:
        if name not in parts:
            raise ConfigError(f"optimizers.{name}: {did_you_mean(name, parts)} Dreamer has: {', '.join(parts)}.")

    def own(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if config.optimizer == "laprop":
            return LaProp(parameters, agc=config.agc, warmup=config.warmup_updates)
        return KerasAdam(parameters, eps=config.adam_eps, decay=config.weight_decay)

    return {name: named.get(name, own)(parameters) for name, parameters in parts.items()}


def make_latent(config: DreamerConfig) -> Latent:
    """The stochastic part of the state."""
    if config.latent == "gaussian":
        return GaussianLatent(config.stoch)
    return CategoricalLatent(config.stoch, config.classes, config.unimix)


def make_cell(config: DreamerConfig, stoch: int, action: int) -> Cell:
    """The deterministic part of the state."""
    if config.cell == "block_gru":
        return BlockGRU(config.deter, stoch, action, config.hidden, config.blocks)
    sizes = (config.deter, stoch, action, config.hidden)
    if config.cell == "keras_gru":
        return KerasGRU(*sizes)
    return NormedGRU(*sizes, normed=config.cell != "gru", bias=config.cell != "layer_norm_gru")


def images(shapes: Shapes) -> dict[str, Any]:
    """The images among what is observed."""
    return {key: shape for key, shape in shapes.items() if key != VECTOR}
