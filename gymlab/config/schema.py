"""The typed, frozen config that every experiment resolves to. An algorithm's config is a subclass with its own fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """Base of every config model: no unknown keys, no changes after construction."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)


class Schedule(Frozen):
    """A number that changes over the run. Positions up to 1 are fractions of the budget, above 1 absolute env steps."""

    start: float
    """Value before and at the start position."""
    end: float = 0.0
    """Value at and after the end position."""
    from_: float = Field(0.0, alias="from")
    """Position where the change begins."""
    to: float = 1.0
    """Position where the change ends."""
    schedule: Literal["linear", "cosine", "exponential"] = "linear"
    """Shape of the change."""
    warmup: float = 0.0
    """Fraction of the span over which the value first rises linearly from 0 to `start`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True)


Scalar = float | Schedule
"""A hyperparameter that may be scheduled and changed while a run goes on."""


class Spec(Frozen):
    """What is known about the environment: for people, and for the threshold that means solved."""

    model_config = ConfigDict(extra="allow", frozen=True)

    returns: dict[str, Any] = Field(default_factory=dict)


class Phase(Frozen):
    """A stage of the curriculum. Keys this class does not know reach the workflow in `options`."""

    name: str
    type: Literal["online", "offline", "eval_only"]
    hooks: tuple[HookSpec, ...]
    """Hooks in the order in which they are called."""
    duration_steps: int | None = None
    duration_updates: int | None = None
    duration_cycles: int | None = None
    until: Until | None = None
    buffer: str | None = None
    """Name of the buffer that collected data goes to and batches come from."""
    options: dict[str, Any] = Field(default_factory=dict)


class HookSpec(Frozen):
    """One hook of a phase, with how often it runs in a cycle."""

    name: str
    times: int = 1
    """Calls a cycle."""
    ratio: float | None = None
    """Updates per environment step; the fraction left over is saved."""


class Until(Frozen):
    """A phase may end when a metric reaches a value."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None


class Training(Frozen):
    """The curriculum."""

    phases: tuple[Phase, ...] = ()


class Config(Frozen):
    """Fields that every experiment has, whatever the algorithm."""

    # What is trained on what
    env_id: str
    algo_id: str
    variant: str = ""
    project_id: str = ""
    description: str = ""
    spec: Spec = Spec()
    seed: Annotated[int, Field(ge=0)] = 42

    # Environments
    n_envs: Annotated[int, Field(ge=1)] = 1
    vectorization_mode: Literal["auto", "native", "sync", "async"] = "auto"
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    env_wrappers: tuple[dict[str, Any], ...] = ()
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    obs_type: Literal["vector", "rgb", "ram", "objects"] | None = None
    frame_stack: Annotated[int, Field(ge=1)] = 1
    frame_skip: Annotated[int, Field(ge=1)] = 1
    grayscale_obs: bool = False
    resize_obs: tuple[int, int] | None = None
    normalize_obs: Literal["off", "rolling", "static"] = "off"
    normalize_reward: bool = False
    render_mode: str | None = None

    # Budget
    max_env_steps: Annotated[int, Field(ge=1)] | None = None
    max_epochs: Annotated[int, Field(ge=1)] | None = None
    epoch_env_steps: Annotated[int, Field(ge=1)] | None = None
    """Environment steps in an epoch; none: one cycle of hooks is an epoch."""

    # Evaluation
    eval_freq_epochs: Annotated[int, Field(ge=1)] | None = None
    eval_warmup_epochs: Annotated[float, Field(ge=0)] = 0
    eval_episodes: Annotated[int, Field(ge=1)] = 100
    eval_deterministic: bool = True
    eval_recording_freq_epochs: Annotated[int, Field(ge=1)] | None = None
    eval_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    eval_time_limit: Annotated[float, Field(gt=0)] = 600.0
    """Seconds an evaluation may take; episodes finished by then count."""
    reward_threshold: float | None = None
    early_stop_on_eval_threshold: bool | float = True
    early_stop_on_train_threshold: bool | float = False

    # Run
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3
    init_from_run: str | None = None
    quiet: bool = False
    enable_tensorboard: bool = False
    enable_wandb: bool = False

    # Hardware
    accelerator: str = "auto"
    devices: int | str = 1
    precision: str = "32-true"
    torch_threads: Annotated[int, Field(ge=1)] | None = None
    """Torch threads; none: one for small networks, all cores for convolutions."""

    # Composed experiments
    components: dict[str, Any] = Field(default_factory=dict)
    controllers: dict[str, Any] = Field(default_factory=dict)
    buffers: dict[str, Any] = Field(default_factory=dict)
    optimizers: dict[str, Any] = Field(default_factory=dict)
    training: Training = Training()


Phase.model_rebuild()
