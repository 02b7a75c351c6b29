"""Settings of TD-MPC and TD-MPC2. Version and size fill in what an experiment leaves open; everything can be set by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from gymlab.config.effects import ALL_AT_ONCE, CONTINUOUS_ACTIONS, IMAGES, NO_IMAGES, RAW, NoEffect
from gymlab.config.schedules import not_negative
from gymlab.config.schema import Config, Scalar, as_they_are

Whole = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"encoder_hidden": 128, "hidden": 128, "latent": 64, "q_count": 2},
    "1m": {"encoder_hidden": 256, "hidden": 384, "latent": 128, "q_count": 2},
    "5m": {"encoder_hidden": 256, "hidden": 512, "latent": 512, "q_count": 5},
    "19m": {"encoder_hidden": 1024, "hidden": 1024, "latent": 768, "q_count": 5, "encoder_layers": 2},
    "48m": {"encoder_hidden": 1792, "hidden": 1792, "latent": 768, "q_count": 5, "encoder_layers": 3},
    "317m": {"encoder_hidden": 4096, "hidden": 4096, "latent": 1376, "q_count": 8, "encoder_layers": 4},
}
"""TD-MPC2 by its nominal number of parameters; `tiny` is ours, for a quick look on a laptop.

The authors train single tasks at 5m. Their other sizes are of their study of many tasks, for which 19m, 48m and 317m were made.
"""

MULTI_TASK_SIZES = ("19m", "48m", "317m")
"""Sizes that the authors train on 30 or 80 tasks at once, with a learned embedding of the task: gymlab trains them on one."""

FIRST_VERSION: dict[str, Any] = {
    "latent": 50,
    "q_count": 2,
    "dropout": 0.0,
    "gamma": 0.99,
    "consistency_coef": 2.0,
    "reward_coef": 1.0,
    "value_coef": 0.4,
    "ent_coef": 0.0,
    "slow_every": 2,
    "horizon": 5,
    "plan_samples": 537,
    "plan_policy_samples": 25,
    "plan_horizon": {"start": 1, "end": 5, "from": 0, "to": 25_000},
    "min_std": {"start": 0.5, "end": 0.05, "from": 0, "to": 25_000},
    "momentum": 0.1,
    "model_lr": 1e-3,
    "policy_lr": 1e-3,
    "encoder_lr_factor": 1.0,
    "max_grad_norm": 10.0,
    "batch_size": 512,
    "seed_steps": 5000,
    "prioritised": True,
}
"""TD-MPC as its authors set it (2022). They weigh whole squares of all value networks; halves and means of them are weighed here."""


class TDMPC2Config(Config):
    """What a TD-MPC2 experiment may set. Defaults are the authors', at 5 million parameters."""

    version: ClassVar[Literal["v1", "v2"]] = "v2"
    """v2 is TD-MPC2 (2024), v1 TD-MPC (2022)."""
    presets: ClassVar[tuple[str, ...]] = ("size",)
    retired: ClassVar[Mapping[str, str]] = {
        "held_out": "the model is not evaluated on steps set aside, and learns from all of them"
    }
    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        RAW,
        ALL_AT_ONCE,
        NoEffect(("encoder_channels",), "there are no convolutions", on=NO_IMAGES, notice=True),
        NoEffect(("encoder_hidden", "encoder_layers"), "there is no vector beside them", on=IMAGES, notice=True),
        NoEffect(("end_coef",), "terminations are learned with episodic: true alone", {"episodic": (False,)}),
        NoEffect(
            ("priority_alpha", "priority_beta"), "they count with prioritised: true alone", {"prioritised": (False,)}
        ),
        NoEffect(("temperature",), "cem weighs the best alike; mppi by their values", {"planner": ("cem",)}),
    )

    size: Literal["tiny", "1m", "5m", "19m", "48m", "317m"] = "5m"
    """Widths of the networks, by their nominal number of parameters; tiny is for a laptop, 19m and above the authors' for 30 or 80 tasks at once."""

    # Model
    latent: Whole = 512
    """Length of the latent; of pictures (v2) it must be what the convolutions give, 16 times `encoder_channels` at 64x64."""
    simnorm_group: Whole = 8
    """Features that share one softmax."""
    encoder_hidden: Whole = 256
    """Width of the encoder's hidden layers."""
    encoder_layers: Whole = 1
    """Hidden layers of the encoder of vectors."""
    encoder_channels: Whole = 32
    """Channels of the encoder of pictures."""
    hidden: Whole = 512
    """Width of the two hidden layers of everything else."""
    q_count: Annotated[int, Field(ge=2)] = 5
    """Networks that the value of an action is learned by."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of units left out in the first layer of each of them, while learning."""
    bins: Annotated[int, Field(ge=3)] = 101
    """Bins that rewards and values are a choice among; an odd number."""
    bin_reach: Annotated[float, Field(gt=0)] = 10.0
    """The outermost bins lie at symexp of this."""
    episodic: bool = False
    """Learn where episodes terminate; plans count nothing behind a termination that is more likely than not. For tasks that can fail."""

    # Losses
    gamma: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Discount; none: (L/5 - 1) / (L/5) for episodes of L steps, from 0.95 to 0.995."""
    reward_unit: Annotated[float, Field(gt=0)] = 1.0
    """Rewards are learned in multiples of it: for v1, which takes them as they are, one in which a step's is about 1."""
    rho: Share = 0.5
    """Weight of each step along the horizon, to the power of its number."""
    consistency_coef: Weight = 20.0
    """Weight of predicted against encoded latents."""
    reward_coef: Weight = 0.1
    """Weight of the reward."""
    value_coef: Weight = 0.1
    """Weight of the values."""
    end_coef: Weight = 1.0
    """Weight of the termination, where it is learned (`episodic`)."""
    ent_coef: Scalar = 1e-4
    """Weight of the policy's entropy before tanh, times the dimensions of the action."""
    tau: Share = 0.01
    """Share of the value networks (v1: of the encoder, too) that their slow copies take over each time, and of a batch in the running range of values (v2)."""
    slow_every: Whole = 1
    """Updates from one time to the next."""

    # Planning
    planner: Literal["mppi", "cem"] = "mppi"
    """How the best of the sampled sequences are weighed."""
    horizon: Whole = 3
    """Steps that are learned along, and planned."""
    plan_horizon: Scalar = 100.0
    """Steps that are planned, cut down to a whole number, and never more than `horizon`."""
    plan_samples: Whole = 512
    """Sequences of actions in each round, the policy's own among them."""
    plan_policy_samples: Annotated[int, Field(ge=0)] = 24
    """Sequences that the policy proposes."""
    plan_elites: Whole = 64
    """The best ones, from which the next round is drawn."""
    plan_iterations: Whole = 6
    """Rounds; in v2 two more from 20 dimensions of action on."""
    temperature: Annotated[float, Field(gt=0)] = 0.5
    """How much more the better sequences weigh."""
    min_std: Scalar = 0.05
    """Least deviation of a plan."""
    max_std: Weight = 2.0
    """Deviation that a plan begins with."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the last round's plan in the next."""

    # Optimisation
    model_lr: Scalar = 3e-4
    """Learning rate of the model."""
    policy_lr: Scalar = 3e-4
    """Learning rate of the policy."""
    encoder_lr_factor: Annotated[float, Field(gt=0)] = 0.3
    """The encoder's learning rate is this times the model's."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 20.0
    """Norm that gradients are scaled down to; none: never."""

    # Data
    batch_size: Whole = 256
    """Sequences of a batch."""
    updates_per_step: Annotated[float, Field(gt=0)] = 1.0
    """Updates for each environment step."""
    seed_steps: Annotated[int, Field(ge=1)] | None = None
    """Environment steps with random actions before learning, and updates made on them at once; none: five episodes, 1000 at least."""
    replay_size: Whole = 1_000_000
    """Steps that are kept, over all environments."""
    replay_on_disk: bool = False
    """Keep them in files that are mapped into memory, for more than memory holds."""
    prioritised: bool = False
    """Draw by how far values were off, and weigh by how often that is."""
    priority_alpha: Annotated[float, Field(ge=0, le=1)] = 0.6
    """How much priorities decide; 0: not at all."""
    priority_beta: Annotated[float, Field(ge=0, le=1)] = 0.4
    """How much weights make up for it; 1: in full."""

    epoch_env_steps: Whole | None = 1000
    """Environment steps in an epoch."""

    _not_negative = field_validator("ent_coef", "min_std", "model_lr", "policy_lr")(not_negative)

    _raw = field_validator("normalize_obs", "normalize_reward")(as_they_are)

    @field_validator("bins")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"must be odd, so that 0 is one of them; got {value}, take {value - 1} or {value + 1}")
        return value

    @classmethod
    def fill_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """What is not given comes from the version and the size."""
        size = values.get("size", "5m" if cls.version == "v2" else None)
        preset = {} if cls.version == "v2" else FIRST_VERSION
        return {**preset, **(SIZES.get(size, {}) if isinstance(size, str) else {}), **values}

    def curriculum(self, episode_steps: int | None) -> tuple[dict[str, Any], ...]:
        """Phases of an experiment that names none: random steps, as many updates on them, then both together."""
        seed_steps = self.seed_steps or max(1000, 5 * (episode_steps or 0))
        hooks: list[Any] = ["collect", {"name": "update_agent", "ratio": self.updates_per_step}]
        seed = {"name": "seed", "type": "online", "hooks": ["collect"], "buffer": "replay", "actions": "random"}
        catch_up = {"name": "catch_up", "type": "offline", "hooks": ["update_agent"], "buffer": "replay"}
        return (
            {**seed, "duration_steps": seed_steps},
            {**catch_up, "duration_updates": seed_steps},
            {"name": "train", "type": "online", "hooks": hooks, "buffer": "replay"},
        )


class TDMPCConfig(TDMPC2Config):
    """What a TD-MPC experiment may set. What it leaves open is as its authors had it: `FIRST_VERSION`."""

    version: ClassVar[Literal["v1", "v2"]] = "v1"
    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(("simnorm_group", "bins", "bin_reach", "dropout"), "TD-MPC's networks have none; tdmpc2's do"),
        NoEffect(
            ("ent_coef",),
            "TD-MPC's policy has noise of fixed size, whose entropy nothing changes",
            on=CONTINUOUS_ACTIONS,
        ),
    )


def heuristic_discount(episode_steps: int | None) -> float:
    """The authors' discount for episodes of so many steps; 0.99 where they have no end."""
    if episode_steps is None:
        return 0.99
    fifth = episode_steps / 5
    return min(max((fifth - 1) / fifth, 0.95), 0.995)
