"""Settings of Δ-IRIS. A size fills in what an experiment leaves open; everything can be set by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gymlab.components.frame_codecs import Stages
from gymlab.config.effects import ALL_AT_ONCE, RAW, NoEffect
from gymlab.config.schedules import not_negative, share
from gymlab.config.schema import Config, Scalar, as_they_are

Whole = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

COMPONENTS = ("tokenizer", "world_model", "controller")
"""What is trained, one after the other in each epoch."""

SIZES: dict[str, dict[str, Any]] = {
    "crafter": {},
    "atari": {
        "tokenizer_frame_channels": 32,
        "tokenizer_frame_features": 16,
        "revival_updates": 400,
        "width": 256,
        "heads": 4,
        "blocks": 26,
        "frame_features": 4,
        "rewards": "sign",
        "values": "scalar",
        "word_scale": 0.1,
        "end_scale": 0.1,
        "horizon": 20,
        "gamma": 0.995,
        "ent_coef": 0.002,
        "tokenizer_batch": 16,
        "model_batch": 64,
        "actor_batch": 64,
        "tokenizer_decay": 0.0,
        "alpha": 1.0,
        "tokenizer_updates": 200,
        "model_updates": 120,
        "actor_updates": 200,
        "first_tokenizer_updates": 400,
        "first_model_updates": 120,
        "first_actor_updates": 200,
        "tokenizer_start_after_epochs": 5,
        "model_start_after_epochs": 50,
        "actor_start_after_epochs": 75,
        "collect_env_steps": 200,
        "first_env_steps": 2_000,
        "collect_epochs": 491,
        "max_epochs": 600,
        "replay_size": 100_000,
    },
    "tiny": {
        "multiples": (1, 1),
        "halves": (0, 0),
        "fold": 4,
        "codebook_size": 64,
        "codebook_dim": 16,
        "token_features": 8,
        "tokenizer_channels": 32,
        "tokenizer_frame_channels": 32,
        "tokenizer_frame_features": 16,
        "width": 128,
        "layers": 2,
        "heads": 4,
        "blocks": 16,
        "frame_features": 2,
        "frame_channels": 16,
        "actor_channels": 16,
        "actor_features": 4,
        "lstm": 128,
        "burn_in": 2,
        "horizon": 12,
        "tokenizer_batch": 8,
        "tokenizer_length": 9,
        "model_batch": 16,
        "actor_batch": 32,
        # A time limit cannot be seen in the few frames that it looks at.
        "truncation_is_end": False,
    },
}
"""The authors' settings for Crafter (the defaults below) and for Atari 100k; `tiny` is ours, for a laptop."""


class DeltaIRISConfig(Config):
    """What a Δ-IRIS experiment may set. Defaults are the authors' for Crafter."""

    presets: ClassVar[tuple[str, ...]] = ("size",)
    no_effect: ClassVar[tuple[NoEffect, ...]] = (RAW, ALL_AT_ONCE)

    size: Literal["crafter", "atari", "tiny"] = "crafter"
    """Whose settings fill in what is left open."""

    # Every convolutional network
    multiples: tuple[Whole, ...] = (1, 1, 2, 2, 4)
    """Channels of each stage, as multiples of the network's own number."""
    halves: tuple[Annotated[int, Field(ge=0, le=1)], ...] = (1, 0, 1, 1, 0)
    """Whether a stage halves the picture: 1 or 0."""
    fold: Whole = 1
    """Blocks of fold x fold pixels are taken for one with more channels: much cheaper, for pictures made of tiles."""

    # Tokenizer
    tokens: Whole = 4
    """Words for what is new in a frame; a square number."""
    codebook_size: Annotated[int, Field(ge=2)] = 1024
    """Words that there are."""
    codebook_dim: Whole = 64
    """Dimensions in which words are compared."""
    token_features: Whole = 64
    """Channels of the encoded frame, of which each word stands for a patch."""
    tokenizer_channels: Whole = 64
    """Channels of encoder and decoder."""
    tokenizer_frame_channels: Whole = 64
    """Channels of the network that shows the decoder the frame before."""
    tokenizer_frame_features: Whole = 8
    """Features of each place that it makes of it."""
    action_channels: Whole = 4
    """Features of each place that tell the decoder the action."""
    revival_updates: Count = 0
    """Updates during which words that nobody uses are replaced; a codebook that has collapsed is always helped."""

    # World model
    width: Whole = 512
    """Width of the transformer."""
    layers: Whole = 3
    """Layers of the transformer."""
    heads: Whole = 8
    """Attention heads of each layer."""
    blocks: Annotated[int, Field(ge=2)] = 21
    """Steps that the transformer looks back at most, and steps of a sequence that it learns from."""
    frame_channels: Whole = 32
    """Channels of the network that turns a frame into a token."""
    frame_features: Whole = 8
    """Features of each place that it makes of a frame; all places together are the width."""
    rewards: Literal["two_hot", "sign"] = "two_hot"
    """Rewards as a choice among 255 bins, or their sign."""
    word_scale: Weight = 1.0
    """Weight of the loss on words."""
    reward_scale: Weight = 1.0
    """Weight of the loss on rewards."""
    end_scale: Weight = 1.0
    """Weight of the loss on endings."""
    truncation_is_end: bool = True
    """Whether a time limit counts as an end in the data, as in the authors' program; false: terminations only, and values look beyond time limits."""

    # Actor and critic
    actor_channels: Whole = 32
    """Channels of the network that looks at frames."""
    actor_features: Whole = 16
    """Features of each place that it makes of a frame."""
    lstm: Whole = 512
    """Width of the memory."""
    values: Literal["two_hot", "scalar"] = "two_hot"
    """Values as a choice among 255 bins, or as a number."""
    burn_in: Count = 5
    """Real frames that are seen before the first dreamt step."""
    horizon: Whole = 15
    """Steps of a dream."""
    reward_unit: Annotated[float, Field(gt=0)] = 1.0
    """Rewards are learned in units of this: one in which a return is about 10. Smaller ones leave the actor, which shares its eyes with the critic, unheard."""
    gamma: Scalar = 0.997
    """Discount of future rewards."""
    lam: Scalar = 0.95
    """Weight of long against short horizons in the returns."""
    ent_coef: Scalar = 0.001
    """Weight of the actor's entropy."""
    slow_rate: Annotated[float, Field(gt=0, le=1)] = 0.005
    """Share of actor and critic that their slow copy, whose values are the targets, takes over at each update."""

    # Acting
    epsilon: Scalar = 0.01
    """Share of random actions while collecting."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Logits are divided by this when an action is drawn."""
    collect_env_steps: Whole = 10_000
    """Environment steps of an epoch."""
    first_env_steps: Whole = 100_000
    """Environment steps of the first epoch, all at random."""
    collect_epochs: Whole | None = 991
    """Epochs after which nothing is collected any more."""
    collect_steps: Whole = 25
    """Steps in each environment of one call; a stop is looked for after each."""
    max_epochs: Whole | None = 1000
    """Epochs in all."""

    # Learning, by component
    tokenizer_lr: Scalar = 1e-4
    """Learning rate of the tokenizer."""
    model_lr: Scalar = 1e-4
    """Learning rate of the world model."""
    policy_lr: Scalar = 1e-4
    """Learning rate of actor and critic."""
    tokenizer_decay: Weight = 0.01
    """Weight decay of the tokenizer's linear layers."""
    model_decay: Weight = 0.01
    """Weight decay of the world model's linear layers."""
    max_grad_norm: Weight | None = 10.0
    """Norm that each component's gradient is scaled down to; none: never."""
    accumulate: Whole = 1
    """Batches whose gradients are added up for one step."""
    tokenizer_batch: Whole = 32
    """Sequences of a batch for the tokenizer."""
    tokenizer_length: Annotated[int, Field(ge=2)] = 21
    """Frames of its sequences."""
    model_batch: Whole = 32
    """Sequences of a batch for the world model."""
    actor_batch: Whole = 86
    """Starts of dreams in a batch."""
    alpha: Weight = 5.0
    """How much more often episodes are drawn that were drawn seldom: the power of 1 / (1 + times)."""
    tokenizer_updates: Whole = 500
    """Updates of the tokenizer in an epoch."""
    model_updates: Whole = 500
    """Updates of the world model in an epoch."""
    actor_updates: Whole = 500
    """Updates of actor and critic in an epoch."""
    first_tokenizer_updates: Whole = 5_000
    """The same for the first epoch."""
    first_model_updates: Whole = 2_500
    """The same for the first epoch."""
    first_actor_updates: Whole = 500
    """The same for the first epoch."""
    tokenizer_start_after_epochs: Count = 0
    """Epochs before the tokenizer learns."""
    model_start_after_epochs: Count = 0
    """Epochs before the world model learns."""
    actor_start_after_epochs: Count = 0
    """Epochs before actor and critic learn."""

    replay_size: Whole = 10_000_000
    """Steps that are kept, over all environments."""
    replay_on_disk: bool = False
    """Keep episodes in files and only those that were drawn lately in memory."""

    epoch_env_steps: Whole | None = None
    """Environment steps in an epoch; none: one pass over collecting and learning."""
    eval_deterministic: bool = False
    """Evaluate the most likely action instead of a sampled one; the authors sample."""

    _shares = field_validator("gamma", "lam", "epsilon")(share)
    _not_negative = field_validator("ent_coef", "tokenizer_lr", "model_lr", "policy_lr")(not_negative)
    _raw = field_validator("normalize_obs", "normalize_reward")(as_they_are)

    @model_validator(mode="after")
    def _fits(self) -> DeltaIRISConfig:
        if math.isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"tokens: {self.tokens} words do not fill a square; take 1, 4, 9 or 16")
        if len(self.multiples) != len(self.halves):
            raise ValueError(f"halves: {len(self.halves)} stages, and {len(self.multiples)} of multiples")
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not divisible by {self.heads} heads")
        if self.blocks < self.burn_in + 2:
            raise ValueError(
                f"blocks: {self.blocks} steps have no room for a dream behind burn_in: {self.burn_in} frames"
            )
        return self

    @classmethod
    def fill_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """What is not given comes from the size."""
        size = values.get("size", "crafter")
        return {**(SIZES.get(size, {}) if isinstance(size, str) else {}), **values}

    @property
    def stages(self) -> Stages:
        """What the convolutional networks have in common."""
        return Stages(self.multiples, self.halves, self.fold)

    def curriculum(self) -> tuple[dict[str, Any], ...]:
        """Phases of an experiment that names none: a long first epoch at random, then one for each set of components that learn."""
        starts = {
            "tokenizer": self.tokenizer_start_after_epochs,
            "world_model": self.model_start_after_epochs,
            "controller": self.actor_start_after_epochs,
        }
        ends = [epochs for epochs in (self.collect_epochs, self.max_epochs) if epochs is not None]
        bounds = sorted({0, 1, *starts.values(), *ends})
        phases: list[dict[str, Any]] = []
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
            if self.max_epochs is not None and begin >= self.max_epochs:
                break
            learns = [name for name in COMPONENTS if begin >= starts[name]]
            collects = self.collect_epochs is None or begin < self.collect_epochs
            phases.append(
                self._phase(learns, collects=collects, first=begin == 0, cycles=None if end is None else end - begin)
            )
            phases[-1]["name"] = "first" if begin == 0 else f"from_epoch_{begin + 1}"
        return tuple(phases)

    def _phase(self, learns: list[str], *, collects: bool, first: bool, cycles: int | None) -> dict[str, Any]:
        updates = (
            (self.first_tokenizer_updates, self.first_model_updates, self.first_actor_updates)
            if first
            else (self.tokenizer_updates, self.model_updates, self.actor_updates)
        )
        hooks: list[dict[str, Any]] = []
        if collects:
            steps = self.first_env_steps if first else self.collect_env_steps
            hooks.append({"name": "collect", "times": max(1, round(steps / (self.collect_steps * self.n_envs)))})
        for name, count in zip(COMPONENTS, updates, strict=True):
            if name in learns:
                hooks.append({"name": f"update_{name}", "times": count, "buffer": name})
        phase: dict[str, Any] = {"type": "online" if collects else "offline", "hooks": hooks, "buffer": "episodes"}
        if cycles is not None:
            phase["duration_cycles"] = cycles
        # The first epoch's draws do not count: all of its episodes are as good as new.
        return phase | ({"actions": "random", "counts": False} if first else {})
