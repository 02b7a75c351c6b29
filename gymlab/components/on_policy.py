"""What the policy-gradient algorithms have in common: settings, the network they describe, and the way it acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from gymlab.components.analytic import StackedMLP
from gymlab.components.autograd import TorchPolicy
from gymlab.components.distributions import Distribution
from gymlab.components.flat import FlatParameters
from gymlab.components.networks import POLICIES, build_policy
from gymlab.components.observation import ObservationEncoder
from gymlab.components.optimizers import TORCH_ADAMW_DECAY, make_optimizer
from gymlab.config.effects import DISCRETE, IMAGES, UNBOUNDED, Given, NoEffect
from gymlab.config.schedules import not_negative, share
from gymlab.config.schema import Config, Scalar
from gymlab.errors import CheckpointError, ConfigError, did_you_mean

Normalization = Literal["off", "batch", "rollout"]


def yaml_switch(value: Any) -> Any:
    """A kind of normalisation: YAML reads the word `off` as false, and older files say true for what is now `batch`."""
    return {False: "off", True: "batch"}[value] if isinstance(value, bool) else value


OWN_POLICY = Given("a module class of your own", lambda policy: policy is not None and policy not in POLICIES)
OF_KWARGS = "policy_kwargs have their own, which counts"


class OnPolicyConfig(Config):
    """What every policy-gradient experiment may set."""

    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(("normalize_obs",), "the network scales bytes itself", on=IMAGES),
        NoEffect(("normalize_obs",), "they are seen as one-hots", on=DISCRETE),
        NoEffect(("normalize_obs",), "there is nothing to scale them by", {"normalize_obs": ("static",)}, on=UNBOUNDED),
        NoEffect(("model_id", "hidden_dims", "activation"), "it takes policy_kwargs alone", {"policy": OWN_POLICY}),
        NoEffect(
            ("hidden_dims",),
            OF_KWARGS,
            {"policy_kwargs": Given("with hidden_dims", lambda options: "hidden_dims" in options)},
        ),
        NoEffect(
            ("activation",),
            OF_KWARGS,
            {"policy_kwargs": Given("with activation", lambda options: "activation" in options)},
        ),
        NoEffect(
            ("policy",),
            "the named network is of another kind",
            {
                "policy": ("mlp", "mlp_actorcritic"),
                "model_id": Given("cnn_...", lambda name: str(name).startswith("cnn")),
            },
        ),
        NoEffect(
            ("policy",),
            "the named network is of another kind",
            {
                "policy": ("cnn", "cnn_actorcritic"),
                "model_id": Given("mlp_...", lambda name: str(name).startswith("mlp")),
            },
        ),
        NoEffect(
            ("optimizer",),
            "the one of optimizers.policy is used",
            {"optimizers": Given("with policy", lambda named: "policy" in named)},
        ),
    )

    n_steps: Annotated[int, Field(ge=1)] = 2048
    """Steps in each environment between updates."""
    gamma: Scalar = 0.99
    """Discount of future rewards."""

    # Optimiser
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    """Which optimiser of torch; the epsilon of adam and adamw is 1e-5. With weight_decay 0 adamw is adam."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decay of all parameters: adamw multiplies them by 1 - lr x this, adam and sgd add this x the parameter to the gradient. Fixed for a run."""
    max_grad_norm: Scalar | None = 0.5
    """The gradient is scaled down to this norm; none: never."""

    # Network
    policy: str | None = None
    """mlp, cnn (also mlp_actorcritic, cnn_actorcritic), or a module class that a plugin registers; none: by observation."""
    policy_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Network details: hidden_dims, activation, shared_trunk, channels, kernel_sizes, strides, residual, log_std_init, ortho_init."""
    model_id: str | None = None
    """A named network: mlp_tiny, mlp_small, mlp_medium, mlp_large, cnn_nature, cnn_impala, cnn_large."""
    hidden_dims: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Widths of the fully connected layers; none: (64, 64) on vectors, (512,) on images."""
    activation: str | None = None
    """tanh, relu, elu, gelu or silu; none: tanh on vectors, relu on images."""

    @field_validator("hidden_dims", mode="before")
    @classmethod
    def _one_layer(cls, value: Any) -> Any:
        # A list is made a tuple here: strict validation refuses it once a validator has had it.
        return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value

    _gamma_is_a_share = field_validator("gamma")(share)
    _norm_is_not_negative = field_validator("max_grad_norm")(not_negative)

    @model_validator(mode="after")
    def _decay_is_read(self) -> OnPolicyConfig:
        if self.weight_decay and self.optimizers:
            raise ValueError(
                f"weight_decay {self.weight_decay:g} is of the optimizer that `optimizer` names, and `optimizers` makes its own: "
                f"write weight_decay there, below {' and '.join(f'optimizers.{name}' for name in self.optimizers)}"
            )
        return self

    @classmethod
    def unwritten(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Before there was a key for it, adamw decayed by what torch takes when nobody names a decay."""
        decayed = data.get("optimizer") == "adamw" and not data.get("optimizers")
        return {"weight_decay": TORCH_ADAMW_DECAY} if decayed and "weight_decay" not in data else {}

    @property
    def rollout_size(self) -> int:
        """Rows of a full rollout."""
        return self.n_envs * self.n_steps


def policy_network(
    config: OnPolicyConfig, encoder: ObservationEncoder, distribution: Distribution, seed: int, **options: Any
) -> nn.Module:
    """The network that the config describes, its weights drawn from `seed`; `options` lie under the config's policy_kwargs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_policy(
            encoder.output_shape,
            distribution,
            is_image=encoder.is_image,
            policy=config.policy,
            model_id=config.model_id,
            hidden_dims=config.hidden_dims,
            activation=config.activation,
            policy_kwargs=options | config.policy_kwargs,
        )


def make_optimizers(
    config: OnPolicyConfig,
    parts: Mapping[str, list[nn.Parameter]],
    rates: Mapping[str, float],
    named: Mapping[str, Callable[..., torch.optim.Optimizer]],
) -> dict[str, torch.optim.Optimizer]:
    """An optimizer for each part: the one that the experiment's `optimizers` give under its name, else as `optimizer` says."""
    for name in named:
        if name not in parts:
            raise ConfigError(
                f"optimizers.{name}: {did_you_mean(name, parts)} {config.algo_id} has: {', '.join(parts)}."
            )
    return {
        name: named[name](parameters)
        if name in named
        else make_optimizer(config.optimizer, parameters, rates[name], config.weight_decay)
        for name, parameters in parts.items()
    }


def check_decay(config: OnPolicyConfig, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """A checkpoint brings the decay that it was trained with: a config that says another one must not be passed over in silence."""
    for optimizer in () if config.optimizers else optimizers.values():
        saved = optimizer.param_groups[0]["weight_decay"]
        if saved != config.weight_decay:
            raise CheckpointError(
                f"weight_decay: the checkpoint was trained with {saved:g}, and the run's config says {config.weight_decay:g}. "
                f"Put {saved:g} there to go on, or begin a new run from its weights with --init-from-run."
            )


def acting_policy(
    network: Any, flat: FlatParameters, config: OnPolicyConfig, *, is_image: bool, device: torch.device, fabric: Any
) -> tuple[StackedMLP | TorchPolicy, str]:
    """The fastest way to act with `network`, and why that is not numpy on its weights (empty: it is)."""
    obstacle = StackedMLP.fits(network, flat)
    if not obstacle and is_image:
        obstacle = "observations are images"
    if not obstacle and config.precision != "32-true":
        obstacle = f"it computes in 32-true, not in {config.precision}"
    return (TorchPolicy(network, device, fabric) if obstacle else StackedMLP(network, flat)), obstacle


def choose_actions(
    distribution: Distribution,
    parameters: np.ndarray,
    generator: np.random.Generator,
    *,
    deterministic: bool,
    action_mask: np.ndarray | None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Actions as the environment takes them, and what `Workflow.act` tells beside: log_prob, and probabilities or mean and std."""
    parameters = distribution.mask(parameters, action_mask)
    if deterministic:
        actions = distribution.mode(parameters)
    else:
        actions = distribution.sample(parameters, distribution.noise(generator, (len(parameters),)))
    extras = {"log_prob": distribution.log_prob(parameters, actions)}
    probabilities = distribution.probabilities(parameters)
    if probabilities is not None:
        extras["probabilities"] = probabilities
    moments = distribution.moments(parameters)
    if moments is not None:
        extras["mean"], extras["std"] = moments
    return distribution.to_environment(actions), extras
