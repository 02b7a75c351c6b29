"""Settings of Dreamer. A version and a size fill in what an experiment leaves open; everything can be set by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from gymlab.config.derive import budget_of
from gymlab.config.effects import (
    ALL_AT_ONCE,
    CONTINUOUS_ACTIONS,
    DISCRETE_ACTIONS,
    IMAGES,
    NO_DISCRETE,
    NO_IMAGES,
    RAW,
    NoEffect,
)
from gymlab.config.reads import Reads
from gymlab.config.schedules import not_negative, share
from gymlab.config.schema import Config, Scalar

Whole = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0)]

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"deter": 128, "hidden": 64, "units": 64, "classes": 4, "cnn_depth": 4},
    "1m": {"deter": 512, "hidden": 64, "units": 64, "classes": 4, "cnn_depth": 4},
    "12m": {"deter": 2048, "hidden": 256, "units": 256, "classes": 16, "cnn_depth": 16},
    "25m": {"deter": 3072, "hidden": 384, "units": 384, "classes": 24, "cnn_depth": 24},
    "50m": {"deter": 4096, "hidden": 512, "units": 512, "classes": 32, "cnn_depth": 32},
    "100m": {"deter": 6144, "hidden": 768, "units": 768, "classes": 48, "cnn_depth": 48},
    "200m": {"deter": 8192, "hidden": 1024, "units": 1024, "classes": 64, "cnn_depth": 64},
    "400m": {"deter": 12288, "hidden": 1536, "units": 1536, "classes": 96, "cnn_depth": 96},
}
"""Dreamer v3 by its nominal number of parameters; `tiny` is ours, for a quick look on a laptop."""

VERSIONS: dict[str, dict[str, Any]] = {
    "v1": {
        "deter": 200,
        "hidden": 200,
        "units": 400,
        "cnn_depth": 32,
        "latent": "gaussian",
        "stoch": 30,
        "unimix": 0.0,
        "cell": "keras_gru",
        "prior_layers": 1,
        "actor_layers": 4,
        "critic_layers": 3,
        "reward_layers": 2,
        "continue_layers": 3,
        "discrete_obs": "numbers",
        "dyn_scale": 1.0,
        "rep_scale": 1.0,
        "free_nats": 3.0,
        "free_nats_of": "mean",
        "scalars": "normal",
        "continue_scale": 0.0,
        "slow_critic": "none",
        "replay_value_scale": 0.0,
        "gamma": 0.99,
        "actor_gradient": "dynamics",
        "scale_returns": False,
        "continuous_actor": "tanh_normal",
        "ent_coef": 0.0,
        "exploration_noise": 0.3,
        "optimizer": "adam",
        "model_lr": 6e-4,
        "critic_lr": 8e-5,
        "actor_lr": 8e-5,
        "adam_eps": 1e-7,
        "max_grad_norm": 100.0,
        "batch_size": 50,
        "batch_length": 50,
        # 100 updates every 1,000 frames, and 5,000 frames at random, of which an action lasts two.
        "train_ratio": 500.0,
        "prefill_steps": 2500,
        "prefill_actions": "random",
        "pretrain_updates": 100,
        "pretrain_hook": "update_agent",
        "replay_context": 0,
        "online_queue": False,
        "eval_deterministic": True,
    },
    "v2": {
        "deter": 1024,
        "hidden": 1024,
        "units": 400,
        "cnn_depth": 48,
        "latent": "categorical",
        "stoch": 32,
        "classes": 32,
        "unimix": 0.0,
        "cell": "biased_layer_norm_gru",
        "vector_layers": 4,
        "prior_layers": 1,
        "actor_layers": 4,
        "critic_layers": 4,
        "reward_layers": 4,
        "continue_layers": 4,
        "discrete_obs": "numbers",
        "reward_transform": "tanh",
        "dyn_scale": 0.8,
        "rep_scale": 0.2,
        "free_nats": 0.0,
        "free_nats_of": "mean",
        "scalars": "normal",
        "continue_scale": 1.0,
        "slow_critic": "target",
        "slow_every": 100,
        "slow_rate": 1.0,
        "replay_value_scale": 0.0,
        "gamma": 0.99,
        "actor_gradient": "auto",
        "scale_returns": False,
        "continuous_actor": "truncated_normal",
        "ent_coef": 2e-3,
        "exploration_noise": 0.0,
        "optimizer": "adam",
        "model_lr": 1e-4,
        "critic_lr": 2e-4,
        "actor_lr": 8e-5,
        "weight_decay": 1e-6,
        "max_grad_norm": 100.0,
        "batch_size": 16,
        "batch_length": 50,
        "train_ratio": 160.0,
        "prefill_steps": 10_000,
        "prefill_actions": "random",
        "pretrain_updates": 1,
        "pretrain_hook": "update_agent",
        "replay_size": 2_000_000,
        "replay_context": 0,
        "online_queue": False,
        "prioritize_ends": True,
        "eval_deterministic": True,
    },
    "v3": {},
}
"""What differs from v3, whose values are the defaults below. DreamerV2's are the `defaults` of its authors' program."""

SUITES: dict[str, dict[str, Any]] = {
    "atari": {
        "deter": 600,
        "hidden": 600,
        "dyn_scale": 0.08,
        "rep_scale": 0.02,
        "continue_scale": 5.0,
        "gamma": 0.999,
        "ent_coef": 1e-3,
        "model_lr": 2e-4,
        "critic_lr": 1e-4,
        "actor_lr": 4e-5,
        "train_ratio": 50.0,
        "prefill_steps": 50_000,
    },
    "dmc": {
        "deter": 200,
        "hidden": 200,
        "reward_transform": "none",
        "free_nats": 1.0,
        "continue_scale": 0.0,
        "ent_coef": 1e-4,
        "model_lr": 3e-4,
        "critic_lr": 8e-5,
        "actor_lr": 8e-5,
        "prefill_steps": 1000,
        "pretrain_updates": 100,
        "prioritize_ends": False,
    },
}
"""The two settings that DreamerV2's results were made with, `atari` and `dmc_vision` of its program: what differs from its defaults."""

EARLIER: dict[str, Any] = {
    "suite": None,
    "discrete_obs": "numbers",
    "reward_transform": "none",
    "adam_eps": 1e-5,
    "prefill_actions": "random",
    "pretrain_hook": "update_world_model",
    "prioritize_ends": False,
}
"""Settings that runs of earlier releases do not name, as they were then."""


READS = Reads(
    optimizers={"all": "model_lr", "model": "model_lr", "critic": "critic_lr", "actor": "actor_lr"},
    components=("returns",),
    buffers=("replay",),
    phase_options={"actions": ("random", "policy")},
    metrics=(
        "loss/reconstruction/*", "loss/reward", "loss/continue", "loss/dyn", "loss/rep", "loss/policy", "loss/value",
        "loss/replay_value", "loss/total", "world_model/kl", "world_model/posterior_entropy", "world_model/prior_entropy",
        "world_model/reward_bias", "world_model/reward_error", "world_model/end_bias", "world_model/end_foreseen",
        "world_model/open_loop/*", "controller/return", "controller/return_scale", "controller/value", "controller/advantage",
        "controller/reward", "controller/length", "opt/policy/entropy", "opt/grads/norm/*", "replay/age", "replay/online",
        "sys/time_share/*",
    ),
)  # fmt: skip
"""What Dreamer reads in the open parts of a config, and what it logs."""


class DreamerConfig(Config):
    """What a Dreamer experiment may set. Defaults are those of v3 as its authors train it now, at the smallest size."""

    presets: ClassVar[tuple[str, ...]] = ("version", "suite", "size")
    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        RAW,
        ALL_AT_ONCE,
        NoEffect(("size",), "the sizes are DreamerV3's; set deter, hidden and units", {"version": ("v1", "v2")}),
        NoEffect(("suite",), "DreamerV2 alone was published with two settings", {"version": ("v1", "v3")}),
        NoEffect(("classes", "unimix"), "a Gaussian has no classes", {"latent": ("gaussian",)}),
        NoEffect(
            ("blocks",),
            "only block_gru has blocks",
            {"cell": ("biased_layer_norm_gru", "layer_norm_gru", "keras_gru", "gru")},
        ),
        NoEffect(("cnn_depth",), "there are no convolutions", on=NO_IMAGES, notice=True),
        NoEffect(("vector_layers",), "there is no vector beside them", on=IMAGES, notice=True),
        NoEffect(("discrete_obs",), "there are no one-hots", on=NO_DISCRETE),
        NoEffect(("free_nats_of",), "no KL is free", {"free_nats": (0,)}),
        NoEffect(("continue_layers",), "there is no continue head; give it a continue_scale", {"continue_scale": (0,)}),
        NoEffect(("continuous_actor",), "each choice has a probability", on=DISCRETE_ACTIONS),
        NoEffect(("actor_unimix",), "no probability of a choice is there to be mixed", on=CONTINUOUS_ACTIONS),
        NoEffect(("slow_rate", "slow_every"), "there is no target critic", {"slow_critic": ("none",)}),
        NoEffect(("agc", "warmup_updates"), "these belong to laprop", {"optimizer": ("adam",)}),
        NoEffect(
            ("critic_lr", "actor_lr", "adam_eps", "max_grad_norm", "weight_decay"),
            "these belong to adam; laprop has model_lr for everything",
            {"optimizer": ("laprop",)},
        ),
        NoEffect(("pretrain_hook",), "there is nothing to do before training", {"pretrain_updates": (0,)}),
        NoEffect(("prefill_actions",), "no steps come before training", {"prefill_steps": (0,)}),
    )

    version: Literal["v1", "v2", "v3"] = "v3"
    """Whose settings fill in what is left open: Dreamer (2020), DreamerV2 (2021) or DreamerV3 (2025)."""
    size: Literal["tiny", "1m", "12m", "25m", "50m", "100m", "200m", "400m"] = "1m"
    """Widths of v3's networks, by their nominal number of parameters; tiny is for a laptop. v1 and v2 have one size."""
    suite: Literal["atari", "dmc"] | None = None
    """Which of DreamerV2's two published settings fills in what is left open, with version v2; none: its program's defaults."""

    # World model
    deter: Whole = 512
    """Width of the deterministic memory."""
    hidden: Whole = 64
    """Width of the layers inside the memory, the prior and the posterior."""
    units: Whole = 64
    """Width of the layers of encoders, decoders and heads."""
    latent: Literal["categorical", "gaussian"] = "categorical"
    """Family of the stochastic latent."""
    stoch: Whole = 32
    """Categoricals of the latent, or dimensions of a Gaussian one."""
    classes: Annotated[int, Field(ge=2)] = 4
    """Classes of each categorical."""
    unimix: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of each categorical's probability that is spread evenly over its classes."""
    cell: Literal["block_gru", "biased_layer_norm_gru", "layer_norm_gru", "keras_gru", "gru"] = "block_gru"
    """The memory's recurrent cell: v3's block_gru, v2's biased_layer_norm_gru, v1's keras_gru; layer_norm_gru and gru are
    v2's without its bias and without bias and norm, which runs of earlier releases have."""
    blocks: Whole = 8
    """Blocks of the block-diagonal matrices of block_gru."""
    cnn_depth: Whole = 4
    """Channels of the image networks are multiples of this."""
    vector_layers: Whole = 3
    """Layers of the encoder and the decoder of vectors."""
    prior_layers: Whole = 2
    """Hidden layers of the prior."""
    reward_layers: Whole = 1
    """Hidden layers of the reward head."""
    continue_layers: Whole = 1
    """Hidden layers of the continue head."""
    actor_layers: Whole = 3
    """Hidden layers of the actor."""
    critic_layers: Whole = 3
    """Hidden layers of the critic."""
    scalars: Literal["two_hot", "normal"] = "two_hot"
    """Rewards and values as a choice among 255 bins, or as the mean of a Normal."""
    discrete_obs: Literal["categorical", "numbers"] = "categorical"
    """One-hots of discrete observations: seen as they are and learned by cross-entropy, or like any other numbers (v1, v2)."""

    reward_unit: Annotated[float, Field(gt=0)] = 1.0
    """Rewards are learned in units of this. Bins take any size; for v1 and v2 a step should pay about 1 at most."""
    reward_transform: Literal["none", "tanh"] = "none"
    """What is learned of a reward, in those units: itself or its tanh (v2 on Atari). Dreams and values then speak of the tanh too."""

    # World-model loss
    dyn_scale: Weight = 1.0
    """Weight of the KL that moves the prior towards the posterior."""
    rep_scale: Weight = 0.1
    """Weight of the KL that moves the posterior towards the prior."""
    free_nats: Weight = 1.0
    """KL below this is not made smaller."""
    free_nats_of: Literal["step", "mean"] = "step"
    """Whether that holds for each step or for the mean over the batch."""
    reconstruction_scale: Weight = 1.0
    """Weight of what the decoder says about observations."""
    reward_scale: Weight = 1.0
    """Weight of the reward head."""
    continue_scale: Weight = 1.0
    """Weight of the continue head; 0: there is none, and in dreams no episode ends (v1, v2 on control tasks)."""

    # Behaviour
    horizon: Whole = 15
    """Steps that are imagined from each start."""
    imag_last: Whole | None = None
    """Imagine from the last so many steps of each sequence only: much faster on a CPU; none: from all."""
    gamma: Scalar = 1 - 1 / 333
    """Discount of future rewards; part of what the continue head learns."""
    lam: Scalar = 0.95
    """Weight of long against short horizons in the returns: 0 is one step, 1 the whole dream."""
    ent_coef: Scalar = 3e-4
    """Weight of the actor's entropy."""
    actor_gradient: Literal["auto", "reinforce", "dynamics"] = "reinforce"
    """By REINFORCE or through the model; auto: through the model for continuous actions (v2)."""
    scale_returns: bool = True
    """Divide advantages by the range of returns, where that is above 1."""
    continuous_actor: Literal["normal", "truncated_normal", "tanh_normal"] = "normal"
    """Distribution of continuous actions."""
    actor_unimix: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of a discrete actor's probability that is spread evenly. The authors' settings of v3 say 0.01, and their actor ignores it."""
    exploration_noise: Weight = 0.0
    """Deviation of noise added to continuous actions in training; share of random ones among discrete actions."""
    slow_critic: Literal["regularizer", "target", "none"] = "regularizer"
    """Use of a slow copy of the critic: to stay near it, as the value of returns, or none."""
    slow_rate: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Share of the critic that its slow copy takes over each time."""
    slow_every: Whole = 1
    """Updates between two such times."""
    replay_value_scale: Weight = 0.3
    """Weight of the critic's loss on replayed steps."""

    # Optimisation
    optimizer: Literal["laprop", "adam"] = "laprop"
    """laprop: one for everything, with adaptive clipping; adam: one each for model, critic and actor."""
    model_lr: Scalar = 4e-5
    """Learning rate of the world model (laprop: of everything)."""
    critic_lr: Scalar = 4e-5
    """Learning rate of the critic, with adam."""
    actor_lr: Scalar = 4e-5
    """Learning rate of the actor, with adam."""
    agc: Annotated[float, Field(gt=0)] | None = 0.3
    """Each tensor's gradient is at most this share of its weights' norm, with laprop; none: no limit."""
    warmup_updates: Annotated[int, Field(ge=0)] = 1000
    """A parameter's first updates, over which laprop's learning rate rises from 0."""
    max_grad_norm: Weight | None = None
    """Norm that each optimiser's gradient is scaled down to, with adam; none: never."""
    adam_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Number that adam adds to the root of the squared gradients' mean."""
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of every weight that is taken off before each step, whatever the learning rate, with adam."""

    # Data
    batch_size: Whole = 16
    """Sequences of a batch."""
    batch_length: Annotated[int, Field(ge=2)] = 64
    """Steps of a sequence."""
    train_ratio: Annotated[float, Field(gt=0)] = 32.0
    """Steps that are replayed for each environment step: updates per environment step times batch_size x batch_length."""
    collect_steps: Whole = 1
    """Steps in each environment between two looks at whether an update is due."""
    prefill_steps: Annotated[int, Field(ge=0)] = 1024
    """Environment steps before training."""
    prefill_actions: Literal["actor", "random"] = "actor"
    """Who takes them: the actor as it begins (v3), or chance (v1, v2)."""
    pretrain_updates: Annotated[int, Field(ge=0)] = 0
    """Updates on those steps before training."""
    pretrain_hook: Literal["update_world_model", "update_agent"] = "update_world_model"
    """What they update: the world model alone, or everything (v1, v2)."""
    dataset: str | None = None
    """Minari dataset, by id or directory, that the replay begins with: what `gymlab record` wrote, or another's; none: nothing."""
    replay_size: Whole = 5_000_000
    """Steps that are kept, over all environments; memory is taken as they come. `describe` says how much: 5 million 64x64 pictures in
    colour are 61 GB, those of a shorter run less."""
    replay_on_disk: bool = False
    """Keep them in files that are mapped into memory, for more than memory holds."""
    replay_context: Annotated[int, Field(ge=0, le=1)] = 1
    """1: sequences begin with the memory that was stored with the step before them; 0: with an empty one."""
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.02
    """Share of the steps that is never trained on, to judge the model by."""
    online_queue: bool = True
    """Serve every new sequence once before random ones."""
    prioritize_ends: bool = False
    """Draw sequences that end where an episode does batch_length + 1 times as often as others (v2 but on control tasks)."""

    eval_deterministic: bool = False
    """Evaluate the most likely action (v1, v2) instead of a sampled one (v3)."""
    epoch_env_steps: Whole | None = 1000
    """Environment steps in an epoch."""

    _shares = field_validator("gamma", "lam")(share)
    _not_negative = field_validator("ent_coef", "model_lr", "critic_lr", "actor_lr")(not_negative)

    @field_validator("normalize_obs", "normalize_reward")
    @classmethod
    def _scaled_here(cls, value: Any) -> Any:
        if value not in ("off", False):
            raise ValueError("dreamer scales observations and returns itself; leave it out")
        return value

    @classmethod
    def fill_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """What is not given comes from the version, and from the suite or the size."""
        version, suite, size = (values.get(name) for name in ("version", "suite", "size"))
        version = version or "v3"
        preset = VERSIONS.get(version, {}) if isinstance(version, str) else {}
        if version == "v2" and isinstance(suite, str):
            preset = preset | SUITES.get(suite, {})
        if version == "v3":
            preset = SIZES.get(size, {}) if isinstance(size, str) else SIZES["1m"]
        return {**preset, **values}

    @classmethod
    def unwritten(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """What a run of an earlier release does not name, as it was then."""
        return {name: value for name, value in EARLIER.items() if name not in data} if cls._is_whole(data) else {}

    @classmethod
    def _is_whole(cls, values: Mapping[str, Any]) -> bool:
        """Whether these are all the settings of a run, of this release or an earlier one, and not what a person chose to set."""
        own = cls.model_fields.keys() - Config.model_fields.keys()
        return own - EARLIER.keys() <= values.keys()

    def replay_options(self) -> dict[str, Any]:
        """What the replay is made with."""
        return {
            "capacity": self.replay_size,
            "batch_size": self.batch_size,
            "length": self.batch_length,
            "context": self.replay_context,
            "online": self.online_queue,
            "held_out": self.held_out,
            "on_disk": self.replay_on_disk,
            # A dataset brings records of its own.
            "expected": None if self.dataset else budget_of(self),
        }

    def curriculum(self) -> tuple[dict[str, Any], ...]:
        """Phases of an experiment that names none: first steps, perhaps updates on them, then both together at the train ratio."""
        ratio = self.train_ratio / (self.batch_size * self.batch_length)
        hooks: list[Any] = ["collect", {"name": "update_agent", "ratio": ratio}]
        phases: list[dict[str, Any]] = [{"name": "train", "type": "online", "hooks": hooks, "buffer": "replay"}]
        if self.pretrain_updates:
            pretrain = {"name": "pretrain", "type": "offline", "hooks": [self.pretrain_hook], "buffer": "replay"}
            phases.insert(0, {**pretrain, "duration_updates": self.pretrain_updates})
        if self.prefill_steps:
            prefill = {"name": "prefill", "type": "online", "hooks": ["collect"], "buffer": "replay"}
            actions = {"actions": "random"} if self.prefill_actions == "random" else {}
            phases.insert(0, {**prefill, "duration_steps": self.prefill_steps, **actions})
        return tuple(phases)
