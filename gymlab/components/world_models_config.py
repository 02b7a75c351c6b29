"""Settings of World Models, and the pipeline that follows from them.

Networks, batches, learning rates, population and trials begin with what the authors' program has for CarRacing. How much is collected, and how many gradient
steps V takes on it, are ours: the authors collect 10,000 episodes of 1,000 frames.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gymlab.config.effects import (
    ALL_AT_ONCE,
    CONTINUOUS_ACTIONS,
    DISCRETE_ACTIONS,
    NO_IMAGES,
    RAW,
    SINGLE_PRECISION,
    NoEffect,
)
from gymlab.config.reads import Reads
from gymlab.config.schedules import not_negative
from gymlab.config.schema import Config, Scalar, as_they_are

Whole = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0)]
UPDATES_AN_EPOCH = 100
"""Gradient steps of V and M between two rows of metrics."""
CODE = "latent/code"
"""Field of a record that holds V's code of its picture."""
REPLAY, PICTURES, SEQUENCES = "replay", "pictures", "sequences"
"""Buffers: what is collected, and what V and M draw from it."""
READS = Reads(
    buffers=(REPLAY,),
    phase_options={"actions": ("random", "controller")},
    metrics=(
        "loss/reconstruction", "loss/kl", "loss/nll", "loss/reward", "loss/end", "opt/grads/norm/*",
        "world_model/vision_kl", "world_model/held_out_nll", "world_model/untrained_nll", "world_model/open_loop/*",
        "world_model/starts", "controller/return/mean", "controller/return/best", "controller/return/elite",
        "controller/sigma", "controller/generation",
    ),
)  # fmt: skip
"""What World Models read in the open parts of a config, and what they log."""


class WorldModelsConfig(Config):
    """What a World Models experiment may set. Defaults are the authors' for CarRacing where nothing else is said."""

    bounds: ClassVar[tuple[str, ...]] = (*Config.bounds, "generations")
    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        RAW,
        ALL_AT_ONCE,
        SINGLE_PRECISION,
        NoEffect(
            ("latent_size", "vae_lr", "vae_batch", "vae_updates"), "a vector is its own code", on=NO_IMAGES, notice=True
        ),
        NoEffect(
            ("eval_deterministic",),
            "a vector is its own code, and the controller draws no actions",
            on=NO_IMAGES,
            notice=True,
        ),
        NoEffect(
            ("vae_lr", "vae_batch", "vae_updates", "model_lr", "model_updates", "batch_size", "batch_length"),
            "V and M stay as they are",
            {"reuse_model": (True,)},
        ),
        NoEffect(("end_weight", "end_scale"), "M does not learn when an episode ends", {"predict_end": (False,)}),
        NoEffect(("reward_scale",), "M does not learn the reward", {"predict_reward": (False,)}),
        NoEffect(("dream_steps",), "no controller is evaluated in dreams", {"evolve_in": ("environment",)}),
        NoEffect(
            ("temperature",),
            "only dreams that somebody plays or looks at have it",
            {"evolve_in": ("environment",)},
            notice=True,
        ),
        NoEffect(("threshold_actions",), "there are no thresholds", {"action_map": ("auto", "car_racing")}),
        NoEffect(("action_hold",), "random actions wander", on=CONTINUOUS_ACTIONS),
        NoEffect(
            ("action_drift",), "random actions are chosen anew or kept", {"action_map": ("auto",)}, on=DISCRETE_ACTIONS
        ),
        NoEffect(("action_hold",), "random actions wander", {"action_map": ("thresholds",)}),
    )

    # V
    latent_size: Whole = 32
    """Length of the code of a picture (the paper's Doom: 64). A vector is its own code."""
    vae_lr: Scalar = 1e-4
    """Learning rate of V."""
    vae_batch: Whole = 100
    """Pictures of a batch of V, drawn from all that were collected but those held out."""

    # M
    hidden: Whole = 256
    """Width of the LSTM (Doom: 512)."""
    mixtures: Whole = 5
    """Normals of a mixture."""
    mixture: Literal["per_dimension", "joint"] = "per_dimension"
    """Whether each dimension of the code has a mixture of its own, or all dimensions one together."""
    predict_reward: bool = False
    """Whether M also learns the reward (the authors: for neither task); a dream without counts its frames."""
    predict_end: bool = False
    """Whether M also learns when the episode ends (Doom); a dream without never does."""
    sees_start: bool = False
    """Tell M which step is an episode's first (Doom)."""
    end_weight: Weight = 10.0
    """How much more an end counts than a step without in M's loss (the authors' for Doom)."""
    reward_scale: Weight = 1.0
    """Weight of the reward in M's loss."""
    end_scale: Weight = 1.0
    """Weight of the end in M's loss."""
    model_lr: Scalar = 1e-3
    """Learning rate of M."""
    clip_value: Annotated[float, Field(gt=0)] = 1.0
    """Largest value of each number of M's gradient."""

    # C
    controller_sees: Literal["z", "z_h", "z_h_c"] = "z_h"
    """What C is given: the code alone, with the LSTM's output, or with its cell too (Doom)."""
    controller_bias: bool = True
    """Whether C has a bias (Doom: no)."""
    action_map: Literal["auto", "car_racing", "thresholds"] = "auto"
    """What C's outputs mean; auto: the largest is chosen, or tanh scaled to the bounds. thresholds: tanh of one output, cut at -1/3 and 1/3."""
    threshold_actions: tuple[int, int, int] = (0, 1, 2)
    """Actions below, between and above the thresholds."""

    # Evolution
    evolve_in: Literal["environment", "dream"] = "environment"
    """Where controllers are judged."""
    temperature: Scalar = 1.0
    """Of dreams: above 1 M's world is more random than the real one and harder to cheat; 0: always the likeliest."""
    dream_steps: Whole = 1000
    """Steps after which a dream is cut (Doom: 2,100)."""
    population: Annotated[int, Field(ge=4)] = 64
    """Controllers of a generation."""
    rollouts: Whole = 16
    """Episodes by which each of them is judged; fewer than about 8 reward luck."""
    sigma: Annotated[float, Field(gt=0)] = 0.1
    """Deviation of the first generation."""
    weight_decay: Weight = 0.01
    """Weight of the mean square of a controller's weights, taken off its return."""
    elite_every: Whole = 25
    """Generations between two trials of the best controller for being called so; there is one after the first, too."""
    elite_rollouts: Annotated[int, Field(ge=16)] = 1024
    """Episodes of such a trial, for each who takes part in it."""

    # Pipeline
    collect_env_steps: Whole = 100_000
    """Environment steps with random actions before anything is learned, and of each further round with the elite's; ours."""
    action_hold: Annotated[float, Field(ge=0, lt=1)] = 0.8
    """Probability that a random choice is kept for another step; ours."""
    action_drift: Weight = 0.14
    """Deviation of the steps by which random continuous actions wander in [-1, 1]; ours."""
    vae_updates: Whole = 10_000
    """Gradient steps of V in each round: as many passes over 100,000 pictures, ten, as the authors take over ten million."""
    model_updates: Whole = 4_000
    """Gradient steps of M in each round."""
    generations: Whole | None = None
    """Generations in each round; none: until the budget is spent."""
    rounds: Whole = 1
    """Rounds of collecting, V, M and C. From the second on, the elite collects (the paper's iterative procedure)."""
    reuse_model: bool = False
    """Keep V and M of init_from_run as they are: collect where dreams begin, encode, and evolve a controller from nothing."""
    n_steps: Whole = 200
    """Steps in each environment between two looks at whether a generation is judged."""

    # Data
    batch_size: Whole = 100
    """Sequences of a batch of M."""
    batch_length: Whole = 999
    """Steps of a sequence (Doom: 499). M's state is carried from batch to batch, so that shorter ones cut gradients and not memory."""
    replay_size: Whole = 1_000_000
    """Steps that are kept, over all environments; ours."""
    replay_on_disk: bool = False
    """Keep them in files that are mapped into memory, for more than memory holds."""
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """Share of the episodes that neither V nor M is trained on, to judge M by; the authors hold out none."""

    _not_negative = field_validator("vae_lr", "model_lr", "temperature")(not_negative)

    _raw = field_validator("normalize_obs", "normalize_reward")(as_they_are)

    @model_validator(mode="after")
    def _ends(self) -> WorldModelsConfig:
        if self.generations is None and (self.rounds > 1 or self.evolve_in == "dream"):
            raise ValueError("generations: several rounds, and evolution in dreams, need a number of them, such as 100")
        if self.evolve_in == "dream" and not (self.predict_reward or self.predict_end):
            raise ValueError("evolve_in: dream needs predict_reward or predict_end; without both all dreams are alike")
        if self.reuse_model and (self.init_from_run is None or self.rounds > 1):
            raise ValueError(
                "reuse_model: true needs the run that has learned V and M (--init-from-run ID), and one round"
            )
        return self

    def curriculum(self, *, sees_pictures: bool) -> tuple[dict[str, Any], ...]:
        """Phases of an experiment that names none: the paper's pipeline, as often as there are rounds."""
        return tuple(phase for number in range(1, self.rounds + 1) for phase in self._round(number, sees_pictures))

    def _round(self, number: int, sees_pictures: bool) -> list[dict[str, Any]]:
        suffix = f"_{number}" if self.rounds > 1 else ""
        collect: dict[str, Any] = {
            "name": f"collect{suffix}",
            "type": "online",
            "hooks": ["collect"],
            "buffer": REPLAY,
        }
        collect |= {"duration_steps": self.collect_env_steps, "actions": "random" if number == 1 else "controller"}
        encode = {"name": f"encode{suffix}", "type": "offline", "hooks": ["collect_codes"], "duration_cycles": 1}
        model = _learning(f"model{suffix}", "update_world_model", SEQUENCES, self.model_updates)
        real = self.evolve_in == "environment"
        evolve: dict[str, Any] = {"name": f"evolve{suffix}", "type": "online" if real else "offline"}
        evolve["hooks"] = ["collect_returns", "update_controller"] if real else ["update_controller"]
        evolve["duration_updates"] = self.generations
        vision = [_learning(f"vision{suffix}", "update_vision", PICTURES, self.vae_updates)] if sees_pictures else []
        if self.reuse_model:
            return [collect, encode, evolve]
        return [collect, *vision, encode, model, evolve]


def _learning(name: str, hook: str, buffer: str, updates: int) -> dict[str, Any]:
    """A phase of gradient steps on batches of what was collected."""
    hooks = [{"name": hook, "times": min(UPDATES_AN_EPOCH, updates), "buffer": buffer}]
    return {"name": name, "type": "offline", "hooks": hooks, "duration_updates": updates}
