"""The typed, frozen config that every experiment resolves to. An algorithm's config is a subclass with more fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from gymlab.config.effects import NATIVE, NO_WORKERS, ONE_A_PROCESS, Given, NoEffect
from gymlab.config.field_types import fit
from gymlab.config.model import Frozen
from gymlab.config.schedules import Scalar, Schedule
from gymlab.errors import did_you_mean

__all__ = [
    "Config",
    "Frozen",
    "HookSpec",
    "Phase",
    "PlateauIntervention",
    "Scalar",
    "Schedule",
    "Spec",
    "Training",
    "Until",
    "tunable_fields",
]

_OPERATION = re.compile(r"(?P<sign>[*/+-])\s*(?P<number>(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)")


class Spec(Frozen):
    """What is known about the environment: for people, and for the threshold. Keys beside these are kept; a config may hold those of `open_keys.KNOWN`."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    description: str = ""
    """What the task is, in a sentence."""
    returns: dict[str, Any] = Field(default_factory=dict)
    """What an episode's return means; `threshold_solved` is the return that counts as solved."""
    task: dict[str, Any] = Field(default_factory=dict)
    """`env_kwargs` and `max_episode_steps` that the threshold holds for, written down where others were set on top of a file's; empty: for those of the config."""

    @field_validator("returns")
    @classmethod
    def _threshold_is_a_number(cls, returns: dict[str, Any]) -> dict[str, Any]:
        threshold = fit(returns.get("threshold_solved"), float | None)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float | None):
            raise ValueError(f"`threshold_solved` expects a number or null, got {threshold!r}")
        return {**returns, "threshold_solved": threshold} if "threshold_solved" in returns else returns


class HookSpec(Frozen):
    """One hook of a phase, with how often it runs in a cycle."""

    name: str
    """Method of the workflow."""
    times: Annotated[int, Field(ge=1)] = 1
    """Calls a cycle."""
    ratio: Annotated[float, Field(gt=0)] | None = None
    """Updates per environment step; the fraction left over is saved."""
    buffer: str | None = None
    """Name of the buffer that this hook adds to or draws from; none: the phase's."""


class Until(Frozen):
    """A phase may end when a metric reaches a value."""

    metric: str
    """Name as in the metrics file, e.g. `val/roll/ep_rew/mean`."""
    at_least: float | None = None
    """The phase ends when the metric is this or more."""
    at_most: float | None = None
    """The phase ends when the metric is this or less."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> Until:
        if self.at_least is None and self.at_most is None:
            raise ValueError("`until` needs `at_least` or `at_most`")
        return self


class Phase(Frozen):
    """A stage of the curriculum. Keys that the workflow declares reach it in `options`; any other is refused."""

    name: str
    """Unique within the curriculum."""
    type: Literal["online", "offline", "eval_only"]
    """Whether the phase steps environments, only learns, or only evaluates; decides the default hooks."""
    hooks: Annotated[tuple[HookSpec, ...], Field(min_length=1)]
    """Hooks in the order in which they are called."""
    duration_steps: Annotated[int, Field(ge=1)] | None = None
    """Environment steps after which the phase ends; the first duration met ends it, none: it ends with the budget."""
    duration_updates: Annotated[int, Field(ge=1)] | None = None
    """Gradient steps after which the phase ends."""
    duration_cycles: Annotated[int, Field(ge=1)] | None = None
    """Cycles of hooks after which the phase ends."""
    until: Until | None = None
    """A metric that ends the phase."""
    buffer: str | None = None
    """Name of the buffer that collected data goes to and batches come from, for hooks that name none of their own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keys that the workflow declares (`Reads.phase_options`): handed to it with the phase."""


class Training(Frozen):
    """The curriculum."""

    phases: tuple[Phase, ...] = ()
    """Phases in order; none: the algorithm's own."""
    resume_path: str | None = None
    """Refused but for null: `gymlab train --resume RUN` goes on with a run."""


class PlateauIntervention(Frozen):
    """What to change when a metric stops improving."""

    metric: str
    """Metric that is watched, as in the metrics file; epochs in which it was not logged do not count."""
    mode: Literal["max", "min"] = "max"
    """Whether more of the metric is better, or less, as of a loss."""
    window: Annotated[int, Field(ge=1)] = 10
    """Newest values of the metric among which an improvement over all earlier ones is looked for."""
    min_improvement: float = 0.0
    """The best of the window must be better than the best before it by more than this."""
    set: dict[str, float | str | None]
    """New values by hyperparameter; text such as "*0.5", "/2", "+0.1" or "-0.1" reckons with the present one."""
    cooldown: Annotated[int, Field(ge=0)] = 0
    """Epochs to wait after a change before a new window begins."""

    @field_validator("set")
    @classmethod
    def _text_reckons(cls, rules: dict[str, float | str | None]) -> dict[str, float | str | None]:
        if not rules:
            raise ValueError("is empty; name what changes, e.g. {policy_lr: '*0.5'}")
        for name, rule in rules.items():
            match = _OPERATION.fullmatch(rule) if isinstance(rule, str) else None
            if isinstance(rule, str) and (match is None or (match["sign"] == "/" and float(match["number"]) == 0)):
                raise ValueError(
                    f"{name}: {rule!r} is no change; give a number, or text in quotes such as '*0.5', '/2', '+0.1', '-0.1'"
                )
        return rules

    def new_value(self, name: str, present: float | None) -> float | None:
        """What the hyperparameter `name` becomes."""
        rule = self.set[name]
        if not isinstance(rule, str):
            return rule
        if present is None:
            raise ValueError(f"it is not set, and {rule} needs a number to start from")
        match = _OPERATION.fullmatch(rule)
        assert match is not None, rule
        number = float(match["number"])
        if match["sign"] in "*/":
            return present * number if match["sign"] == "*" else present / number
        return present + number if match["sign"] == "+" else present - number


class Config(Frozen):
    """Fields that every experiment has, whatever the algorithm."""

    retired: ClassVar[Mapping[str, str]] = {}
    """Fields that this algorithm had in an earlier release, and why it has them no longer; stored runs may still carry them."""
    bounds: ClassVar[tuple[str, ...]] = ("max_epochs",)
    """Fields that end a run where they are set: it needs no default budget then."""
    presets: ClassVar[tuple[str, ...]] = ()
    """Fields whose value stands for values of others, which `fill_in` gives to those that nobody sets."""
    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(
            ("env_workers", "env_step_timeout"),
            "there are no worker processes",
            {"vectorization_mode": ("native", "sync")},
        ),
        NoEffect(
            ("env_workers", "env_step_timeout"),
            "there is nothing for it to work on",
            on=NO_WORKERS,
            notice=True,
        ),
        NoEffect(("env_workers",), "each has one of its own", on=ONE_A_PROCESS),
        NoEffect(("render_mode",), "it is not drawn", on=NATIVE),
        NoEffect(
            ("render_mode",),
            "pictures are what is observed, which is rgb_array",
            {"obs_type": ("rgb",)},
            satisfied=("rgb_array",),
        ),
        NoEffect(
            ("render_mode",),
            "nobody looks at pictures of training but an environment that draws them for itself",
            {"render_mode": Given("any but human", lambda mode: mode != "human")},
            notice=True,
        ),
        NoEffect(
            ("video_max_seconds", "video_max_episode_steps"),
            "no video is made",
            {"video": (False,), "eval_recording_freq_epochs": (None,)},
        ),
        NoEffect(
            ("eval_warmup_epochs", "early_stop_on_eval_threshold"),
            "nothing is evaluated before the end",
            {"eval_freq_epochs": (None,)},
            satisfied=(False,),
            notice=True,
        ),
        NoEffect(("init_parts",), "there is no run to begin with", {"init_from_run": (None,)}),
    )
    """Settings that do nothing in some place, and why: this class's own; those of the classes that it is made of count too."""

    # What is trained on what
    env_id: str
    """Environment: a Gymnasium id or one of the families (`ALE/Pong-v5`, `VizDoom-Basic-v0`, `Bandit-v0`)."""
    algo_id: str
    """Algorithm: a workflow's registered name."""
    variant: str = ""
    """Section of the environment's file that this config came from."""
    project_id: str = ""
    """Name under which runs of this environment are grouped; the stem of the file unless given."""
    description: str = ""
    """What this variant is, in a sentence."""
    spec: Spec = Spec()
    """What is known about the environment."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Root of all randomness; training, evaluation and test have streams of their own."""

    # Environments
    n_envs: Annotated[int, Field(ge=1)] = 1
    """Environments stepped together; `auto`, or none in a file, is the number of cores."""
    vectorization_mode: Literal["auto", "native", "sync", "async"] = "auto"
    """How they are stepped: by one array program, one after the other, in processes, or what measures fastest."""
    env_workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Processes of `async`, each with some of the environments; auto: one a core where they compute, up to one each where they wait."""
    double_buffer: Literal["auto"] | bool = "auto"
    """Act on one half of the environments while workers step the other; auto: where measured times say that it gains over 15%."""
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment itself."""
    env_wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers in order: `id` is the registered name, the other keys its arguments."""
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Steps after which an episode is truncated; none: the environment's own limit."""
    obs_type: Literal["vector", "rgb", "ram", "objects"] | None = None
    """What is observed, where an environment offers a choice."""
    frame_stack: Annotated[int, Field(ge=1)] = 1
    """Newest observations shown together."""
    frame_skip: Annotated[int, Field(ge=1)] = 1
    """Times each action is repeated."""
    grayscale_obs: bool = False
    """Show images without colour."""
    resize_obs: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Height and width that images are resized to; `true` is 84x84."""
    normalize_obs: Literal["off", "rolling", "static"] = "off"
    """Observations by running mean and variance (`rolling`), by the bounds of the space (`static`), or as they are."""
    normalize_reward: bool = False
    """Divide the reward shown to the agent by the running deviation of the discounted return."""
    render_mode: str | None = None
    """Render mode of training environments."""
    env_step_timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that an environment in a process of its own may take for a step or reset before it is restarted."""
    env_restarts: Annotated[int, Field(ge=0)] = 100
    """Failed environments that a run replaces before it gives up, counted anew on resume; 0: the first failure ends it."""

    # Budget
    max_env_steps: Annotated[int, Field(ge=1)] | None = None
    """Environment steps of the whole run, over all environments: as many whole steps of all `n_envs` as fit, never more. In a file,
    left out: [a default](#default-budgets); null: the run goes on until something else ends it."""
    max_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs of the whole run."""
    epoch_env_steps: Annotated[int, Field(ge=1)] | None = None
    """Environment steps in an epoch; none: one cycle of hooks is an epoch."""

    # Evaluation
    eval_freq_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs between evaluations; none or 0: no evaluation. In a file, left out: ten over the run."""
    eval_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs without evaluation at the start; in a file, a value between 0 and 1 is a fraction of all epochs."""
    eval_episodes: Annotated[int, Field(ge=1)] = 100
    """Episodes an evaluation plays."""
    eval_deterministic: bool = True
    """Evaluate the most likely action instead of a sampled one."""
    eval_recording_freq_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs between recorded videos; none: the final evaluation only."""
    eval_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Steps after which an evaluation episode is cut, and counts as it is; below the task's own limit there is no verdict. In a file of a Retro game, left out: 1,000."""
    eval_step_limit: Annotated[int, Field(ge=1)] | None = None
    """Steps after which an evaluation gives up on an episode, which is then unfinished; none: 100,000, or the task's own limit if longer."""
    eval_time_limit: Annotated[float, Field(gt=0)] = 600.0
    """Seconds an evaluation may take; what has not ended by then is unfinished, and there is no verdict."""
    video: bool = True
    """Record a video of the final agent."""
    video_max_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Longest video that is recorded."""
    video_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Steps after which the recorded episode is cut; none: as in evaluation."""
    keep_episodes: Annotated[int, Field(ge=0, le=100)] = 0
    """So many of the best episodes and of the last ones, of training and of evaluation each, are kept in episodes/ to be watched again; 0: none."""
    reward_threshold: float | None = None
    """Return that counts as solved; none: the spec's, or the environment's own."""
    early_stop_on_eval_threshold: bool | float = True
    """Stop when an evaluation reaches the threshold (true) or the number given."""
    early_stop_on_train_threshold: bool | float = False
    """Stop when the mean of the last 100 training episodes reaches the threshold (true) or the number given."""
    plateau_interventions: tuple[PlateauIntervention, ...] = ()
    """Hyperparameters to change when a metric stops improving."""

    # Run
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    """Minutes between checkpoints, besides those at each evaluation and stop."""
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3
    """Newest checkpoints that are kept, besides the best and the last."""
    init_from_run: str | None = None
    """Weights to begin with: `id`, `id/@best`, `id/@last`, `id/epoch=13`, `@last/@best`."""
    init_parts: tuple[str, ...] = ()
    """Parts of that run's model to begin with, e.g. [tokenizer, world_model]; none: all of it."""
    alerts: bool = True
    """Say when the metrics look wrong, what that may mean and what to try."""
    quiet: bool = False
    """Print the report only."""
    enable_tensorboard: bool = False
    """Write TensorBoard files into the run."""
    enable_wandb: bool = False
    """Log to Weights & Biases."""

    # Hardware
    accelerator: str = "auto"
    """Device kind: auto, cpu, gpu, mps."""
    devices: Annotated[int, Field(ge=1)] | str = 1
    """Number of devices."""
    precision: str = "32-true"
    """Number format, in Fabric's words: 32-true, or bf16-mixed (ppo, reinforce, dreamer, tdmpc, tdmpc2, delta_iris): networks in
    bfloat16, losses and distributions in float32."""
    torch_threads: Annotated[int, Field(ge=1)] | None = None
    """Torch threads; none: one for small networks, all cores for convolutions."""

    # Composed experiments
    params: dict[str, Any] = Field(default_factory=dict)
    """Values that other keys refer to as `${params.name}`."""
    dims: dict[str, Any] = Field(default_factory=dict)
    """Sizes that other keys refer to as `${_dims.name}`; written `_dims` in files."""
    components: dict[str, Any] = Field(default_factory=dict)
    """Networks and models by name, each with a registered `_target_`."""
    controllers: dict[str, Any] = Field(default_factory=dict)
    """Controllers by name, each with a registered `_target_`."""
    buffers: dict[str, Any] = Field(default_factory=dict)
    """Buffers by name, each with a registered `_target_`."""
    optimizers: dict[str, Any] = Field(default_factory=dict)
    """Optimizers by name; the parameters are bound at set-up."""
    training: Training = Training()
    """The curriculum."""

    @classmethod
    def fill_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values and what some of them stand for: an algorithm with presets adds those of the preset that is named."""
        return dict(values)

    @classmethod
    def unwritten(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """What a run was trained with before there was a key for it: settings that its config, written by an earlier release, lacks."""
        return {}

    @field_validator("plateau_interventions")
    @classmethod
    def _interventions_fit(cls, rules: tuple[PlateauIntervention, ...]) -> tuple[PlateauIntervention, ...]:
        """Every name must be a hyperparameter of this algorithm, and every number one that it may have."""
        known = tunable_fields(cls)
        for name, value in ((name, value) for rule in rules for name, value in rule.set.items()):
            if name not in known:
                near = did_you_mean(name, known) + " " if did_you_mean(name, known) else ""
                raise ValueError(
                    f"{name!r} cannot change during a run. {near}What can: {', '.join(known) or 'nothing'}"
                )
            if isinstance(value, str):
                continue
            try:
                cls.model_validate({"env_id": "any", "algo_id": "any", name: value})
            except ValidationError as error:
                problems = [problem["msg"] for problem in error.errors() if problem["loc"][:1] == (name,)]
                if problems:
                    shown = "null" if value is None else f"{value:g}"
                    reason = problems[0].removeprefix("Value error, ").replace("Input should", "it should")
                    raise ValueError(f"{name} cannot become {shown}: {reason}") from error
        return rules

    @property
    def solved_threshold(self) -> float | None:
        """The return that means solved, as far as the config knows: its own, else its spec's."""
        if self.reward_threshold is not None:
            return self.reward_threshold
        declared = self.spec.returns.get("threshold_solved")
        return float(declared) if isinstance(declared, int | float) else None


def as_they_are(value: Any) -> Any:
    """For field validators of algorithms that normalise nothing."""
    if value not in ("off", False):
        raise ValueError("this algorithm takes observations and rewards as they are; leave it out")
    return value


def tunable_fields(schema: type[Config]) -> list[str]:
    """Names of the fields that take a number or a schedule: what may change while a run trains."""
    return [name for name, field in schema.model_fields.items() if Schedule in get_args(field.annotation)]
