"""Alerts: what looks wrong in an epoch's metrics, what it may mean and what to try.

    row -> rules -> findings (what holds now) -> Watch -> alerts (what has just begun) and a recap (what there was)

A finding holds for as long as its rule says so. It is an alert when it begins, and again only when it had been gone for
a while, which doubles each time: what comes and goes is told once or twice, not all day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from gymlab.metrics.alert_rules import (
    Bounds,
    EntropyCollapse,
    Finding,
    Moment,
    NotFinite,
    ReturnDeclining,
    Returns,
    ReturnStalled,
    Rule,
    StepNotIncreasing,
)
from gymlab.metrics.styles import MetricStyles

REARM_EPOCHS = 20
"""Epochs that a finding must have been gone before it is told a second time; twice as many before a third time, and so on."""


class Kind(NamedTuple):
    """What an alert's id stands for."""

    meaning: str
    """When it fires, in a sentence."""
    tip: str
    """What to try, in a sentence."""


KINDS: dict[str, Kind] = {
    "not_finite": Kind(
        "A logged metric is NaN or infinite.",
        "Look for infinite rewards or observations, then lower policy_lr or max_grad_norm, or set normalize_obs and normalize_reward.",
    ),
    "step_not_increasing": Kind(
        "An epoch that collects ended without a new environment step.",
        "Make the workflow's collect return the env_steps it took: schedules and the budget stand still until it does.",
    ),
    "out_of_bounds": Kind(
        "The mean of a metric's newest 5 points is outside the min and max that metrics.yaml gives it.",
        "Check what the metric is made of, or correct its bounds in your own conf/metrics.yaml.",
    ),
    "entropy_collapse": Kind(
        "The policy's entropy (mean of 5 points) is below 25% of its start, and the task is not done.",
        "Raise ent_coef (for example to 0.01) or lower policy_lr, so that the agent goes on exploring.",
    ),
    "return_stalled": Kind(
        "The training return (mean of 8 epochs) has not improved by 2% of the way to the goal for 40 epochs and a quarter of the run, and the task is not done.",
        "Explore more (ent_coef, epsilon), try another policy_lr or a larger n_steps, or check that the reward can be reached at all.",
    ),
    "return_declining": Kind(
        "The training return (mean of 8 epochs) is falling and has lost a quarter of the way to the goal from its best.",
        "Lower policy_lr or n_epochs, or let policy_lr fall on a schedule (lin_...); best.ckpt has the agent from before.",
    ),
    "kl_low": Kind(
        "PPO's approx_kl (mean of 5 points) has been below its min for 20 epochs: the policy hardly moves, and the task is not done.",
        "Raise policy_lr or n_epochs.",
    ),
    "kl_high": Kind(
        "PPO's approx_kl (mean of 5 points) is above its max: updates carry the policy far from the one that collected.",
        "Lower policy_lr or n_epochs, or set target_kl (for example 0.02) to end such updates early.",
    ),
    "clip_fraction_low": Kind(
        "PPO's clip_fraction (mean of 5 points) has been below its min for 20 epochs: clipping does nothing, and the task is not done.",
        "Raise policy_lr or n_epochs, or lower clip_range.",
    ),
    "clip_fraction_high": Kind(
        "PPO's clip_fraction (mean of 5 points) is above its max: most samples no longer teach the policy anything.",
        "Lower policy_lr or n_epochs, or take a larger batch_size.",
    ),
    "explained_variance_low": Kind(
        "explained_variance (mean of 5 points) has been below its min for 20 epochs: the values are worse than a constant, and the task is not done.",
        "Raise vf_coef (or value_lr), set normalize_reward, or give the critic its own network (shared_trunk: false).",
    ),
    "dead_units": Kind(
        "More hidden units than its max allows (mean of 5 points) give one output whatever is observed.",
        "Lower policy_lr, set normalize_obs, or take another activation (tanh or elu instead of relu).",
    ),
}
"""Every id with its meaning and tip."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that has just begun to look wrong."""

    id: str
    """One of KINDS."""
    metric: str
    """Full name of the metric that shows it."""
    message: str
    """What is wrong, with the figures."""
    tip: str
    """What to try."""
    env_steps: int
    epoch: int


@dataclass(slots=True)
class Recap:
    """All that one alert did in a run: how often it began and how long it lasted."""

    id: str
    metric: str
    message: str
    """That of the newest time it began."""
    tip: str
    first_env_steps: int
    last_env_steps: int
    """Where it held last."""
    first_epoch: int
    last_epoch: int
    count: int = 0
    """Times it began."""
    epochs: int = 0
    """Epochs in which it held."""


class Watch:
    """Asks every rule about every epoch, says what has just begun and keeps the recap."""

    def __init__(self, styles: MetricStyles, threshold: float | None = None) -> None:
        self.returns = Returns(threshold)
        rules = (
            NotFinite(),
            StepNotIncreasing(),
            Bounds(styles),
            EntropyCollapse(),
            ReturnStalled(),
            ReturnDeclining(),
        )
        self.rules: dict[str, Rule] = {type(rule).__name__: rule for rule in rules}
        self.recaps: dict[tuple[str, str], Recap] = {}
        """Everything that was ever found, by id and metric."""
        self.active: dict[str, float] = {}
        """1 for an id that holds now, 0 for one that did before."""

    def judge(
        self, row: Mapping[str, float], *, env_steps: int, epoch: int, episodes: int, collecting: bool = True
    ) -> list[Alert]:
        """Take an epoch in; returns the alerts that begin with it."""
        self.returns.add(row, episodes)
        moment = Moment(row, env_steps, collecting, self.returns)
        began = []
        self.active = dict.fromkeys(self.active, 0.0)
        for rule in self.rules.values():
            for finding in rule.judge(moment):
                self.active[finding.id] = 1.0
                alert = self._note(finding, env_steps, epoch)
                if alert is not None:
                    began.append(alert)
        return began

    def _note(self, finding: Finding, env_steps: int, epoch: int) -> Alert | None:
        name, metric, message = finding
        tip = KINDS[name].tip
        recap = self.recaps.get((name, metric))
        if recap is None:
            recap = self.recaps[name, metric] = Recap(name, metric, message, tip, env_steps, env_steps, epoch, epoch)
        begins = not recap.count or epoch - recap.last_epoch > REARM_EPOCHS << (recap.count - 1)
        recap.last_env_steps, recap.last_epoch = env_steps, epoch
        recap.epochs += 1
        if not begins:
            return None
        recap.count += 1
        recap.message = message
        return Alert(name, metric, message, tip, env_steps, epoch)

    def get_state(self) -> dict[str, Any]:
        """What a resumed run needs to find and tell the same."""
        return {
            "returns": self.returns.get_state(),
            "rules": {name: rule.get_state() for name, rule in self.rules.items()},
            "recaps": [asdict(recap) for recap in self.recaps.values()],
            "active": self.active,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.returns.set_state(state["returns"])
        for name, rule in self.rules.items():
            rule.set_state(state["rules"][name])
        self.recaps = {(fields["id"], fields["metric"]): Recap(**fields) for fields in state["recaps"]}
        self.active = dict(state["active"])
