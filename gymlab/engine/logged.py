"""Which metrics a run will log, as far as its config tells: what waits for another would wait for ever."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from gymlab.config.schema import Config, Phase, tunable_fields
from gymlab.engine.workflow import Workflow
from gymlab.errors import ConfigError, did_you_mean
from gymlab.metrics import names
from gymlab.metrics.alerts import KINDS

TRAINING = (
    *(names.episode_return("train", statistic) for statistic in ("mean", "last", "best")),
    names.episode_length("train"),
    "train/roll/ep_shaped_rew/mean",
    "train/roll/success/mean",
    "train/roll/achievement_score",
    "train/collect/episodes",
    *(f"train/collect/ep_rew/{statistic}" for statistic in ("mean", "std", "min", "max")),
    names.WALL_SECONDS,
    names.CPU_SECONDS,
    names.STEPS_PER_SECOND,
    names.MEMORY_MB,
)
"""Of every training."""
EVALUATION = (
    *(names.episode_return("val", statistic) for statistic in ("mean", "ci95_low", "ci95_high", "best")),
    names.episode_length("val"),
    names.episode_count("val"),
    "val/roll/success/mean",
    "val/roll/achievement_score",
    names.EVAL_SECONDS,
)
"""Of every evaluation while it trains."""
TOLD = "roll/*/mean"
"""What an environment tells of its episodes is logged under a name of its own."""


def check_metrics(config: Config, workflow: type[Workflow]) -> None:
    """Refuse an `until` or a plateau rule whose metric nobody will log, by name."""
    for phase in config.training.phases:
        if phase.until is not None:
            alerts = [names.alert(kind) for kind in KINDS]
            place = f"training.phases, phase {phase.name!r}: until"
            _check(phase.until.metric, place, [*logged(config, workflow, [phase]), *alerts])
    for rule in config.plateau_interventions:
        _check(rule.metric, "plateau_interventions", logged(config, workflow, config.training.phases))


def logged(config: Config, workflow: type[Workflow], phases: Iterable[Phase]) -> list[str]:
    """Names and patterns of what epochs of these phases log."""
    own = ("*",) if workflow.reads.metrics is None else workflow.reads.metrics
    evaluates = config.eval_freq_epochs or any(hook.name == "evaluate" for phase in phases for hook in phase.hooks)
    tunable = [names.hyperparameter(name) for name in tunable_fields(type(config))]
    return [
        *TRAINING,
        *(EVALUATION if evaluates else ()),
        *tunable,
        *(names.prefixed("train", name) for name in own),
        *(names.prefixed(purpose, TOLD) for purpose in ("train", *(("val",) if evaluates else ()))),
    ]


def _check(metric: str, place: str, known: list[str]) -> None:
    if any(fnmatchcase(metric, pattern) for pattern in known) and not _is_misspelt(metric):
        return
    raise ConfigError(f"{place}: nobody logs the metric {metric!r}. {_reason(metric, known)}".rstrip())


def _is_misspelt(metric: str) -> bool:
    """Whether a name only looks like something that an environment tells: statistics of episodes are known one by one."""
    return fnmatchcase(metric, "*/roll/ep_*") and metric not in (*TRAINING, *EVALUATION)


def _reason(metric: str, known: list[str]) -> str:
    if metric in EVALUATION:
        return "It is of evaluations, and none takes place here: set eval_freq_epochs, e.g. eval_freq_epochs=10."
    if metric.startswith("train/cnt/"):
        return "Counters are no metrics to wait for: a phase's length is duration_steps, duration_updates or duration_cycles."
    if metric.startswith("test/"):
        return "It is measured once, at the end of the run."
    return did_you_mean(metric, [name for name in known if "*" not in name])
