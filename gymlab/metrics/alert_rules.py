"""The rules behind the alerts: each sees every epoch's metrics and says what it finds wrong with them.

Numbers under `sys/` depend on the clock and are not judged: a run that is repeated has the same alerts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from gymlab.metrics.names import ENV_STEPS, episode_return, prefixed
from gymlab.metrics.recorder import numbers_only
from gymlab.metrics.styles import MetricStyles

MEAN_POINTS = 5
"""Points whose mean is compared with a metric's bounds, and with the start of the entropy."""
LASTING_POINTS = 20
"""Points in a row for which a sign that comes and goes in healthy runs must hold."""
START_POINTS = 3
"""Points whose mean is the start of the entropy."""
ENTROPY_SHARE = 0.25
"""Share of its start below which the entropy has collapsed."""
RETURN_WINDOW = 8
"""Epochs with new episodes that a return is averaged over before it is compared."""
STALL_WINDOWS = 5
"""Windows without an improvement after which a return has stalled."""
STALL_SHARE = 0.25
"""Share of all epochs so far that must have gone by as well: slow learners improve in steps that grow longer."""
IMPROVEMENT = 0.02
"""Share of the way to the goal that counts as an improvement."""
LOSS = 0.25
"""Share of the way to the goal that makes a loss a decline."""
GOAL_SHARE = 0.95
"""Share of the way from the first return to the threshold from which on the task counts as done."""
ANNEALED = 0.5
"""Share of its start below which the learning rate itself explains small steps of the policy."""

ENTROPY = prefixed("train", "opt/policy/entropy")
APPROX_KL = prefixed("train", "opt/ppo/approx_kl")
CLIP_FRACTION = prefixed("train", "opt/ppo/clip_fraction")
EXPLAINED_VARIANCE = prefixed("train", "opt/value/explained_variance")
DEAD_UNITS = prefixed("train", "opt/dead_units")
LEARNING_RATE = prefixed("train", "policy_lr")
TRAIN_RETURN = episode_return("train")
VAL_RETURN = episode_return("val")


NOT_JUDGED = ("sys/", "train/alerts/")
"""Metrics whose bounds are for the table only: the clock's, and the alerts themselves."""
IDS_OF_BOUNDS: dict[tuple[str, str], str] = {
    (APPROX_KL, "min"): "kl_low",
    (APPROX_KL, "max"): "kl_high",
    (CLIP_FRACTION, "min"): "clip_fraction_low",
    (CLIP_FRACTION, "max"): "clip_fraction_high",
    (EXPLAINED_VARIANCE, "min"): "explained_variance_low",
    (DEAD_UNITS, "max"): "dead_units",
}
"""Bounds of metrics.yaml that have an id and a tip of their own; any other is `out_of_bounds`."""
LASTING = frozenset({"kl_low", "clip_fraction_low", "explained_variance_low"})
"""What healthy runs show for a while and done ones for good: it must last, and is not told once the task is done."""
SMALL_STEPS = frozenset({"kl_low", "clip_fraction_low"})
"""What a learning rate near the end of its schedule brings about."""


class Finding(NamedTuple):
    """What a rule finds wrong at this moment."""

    id: str
    metric: str
    message: str


class Moment(NamedTuple):
    """What rules judge: an epoch's metrics and what is known around them."""

    row: Mapping[str, float]
    env_steps: int
    collecting: bool
    """Whether the epoch's phase takes environment steps."""
    returns: Returns


class Returns:
    """The training return, epoch by epoch, and how far it is on its way from the first one to the threshold."""

    def __init__(self, threshold: float | None) -> None:
        self.threshold = threshold
        self.newest: deque[float] = deque(maxlen=2 * RETURN_WINDOW)
        self.count = 0
        """Points so far: epochs in which episodes ended."""
        self.start = 0.0
        self.mean = 0.0
        """Of the newest window."""
        self.best = self.worst = 0.0
        """Of all windows."""
        self.mark = 0.0
        """Mean at the newest improvement."""
        self.marked_at = 0
        """Point of the newest improvement."""
        self.evaluated: float | None = None
        """The newest evaluation's return."""
        self.best_evaluated: float | None = None
        self.done = False
        """Whether the newest evaluation, or the newest window of training, is nearly at the threshold."""
        self.reached = False
        """Whether the task was ever done."""
        self._episodes = -1

    def add(self, row: Mapping[str, float], episodes: int) -> None:
        """Take an epoch in. One in which no episode ended repeats the return of the one before and is no point."""
        evaluated, value = row.get(VAL_RETURN), row.get(TRAIN_RETURN)
        if evaluated is not None and _is_finite(evaluated):
            self._add_evaluation(evaluated)
        if value is not None and episodes != self._episodes and _is_finite(value):
            self._episodes = episodes
            self._add_point(value)
        self.done = self._is_done()
        self.reached |= self.done

    def _add_evaluation(self, value: float) -> None:
        self.evaluated = value
        best = self.best_evaluated
        if best is None or value > best + IMPROVEMENT * self.way:
            self.best_evaluated, self.marked_at = value, self.count

    def _add_point(self, value: float) -> None:
        if not self.count:
            self.start = value
        self.count += 1
        self.newest.append(value)
        if self.count < RETURN_WINDOW:
            return
        points = list(self.newest)
        self.mean = sum(points[-RETURN_WINDOW:]) / RETURN_WINDOW
        if self.count == RETURN_WINDOW:
            self.best = self.worst = self.mark = self.mean
            self.marked_at = self.count
        self.best, self.worst = max(self.best, self.mean), min(self.worst, self.mean)
        if self.mean > self.mark + IMPROVEMENT * self.way:
            self.mark, self.marked_at = self.mean, self.count

    @property
    def way(self) -> float:
        """From the first return to the threshold; without one, or if larger, the range that was seen."""
        seen = self.best - self.worst
        return seen if self.threshold is None else max(seen, abs(self.threshold - self.start))

    def _is_done(self) -> bool:
        if self.threshold is None or self.count < RETURN_WINDOW:
            return False
        goal = min(self.threshold, self.start + GOAL_SHARE * (self.threshold - self.start))
        return self.mean >= goal or (self.evaluated is not None and self.evaluated >= goal)

    @property
    def lost(self) -> bool:
        """Whether a quarter of the way was lost since the best window."""
        return self.best > self.mean and self.best - self.mean >= LOSS * self.way

    def get_state(self) -> dict[str, Any]:
        """All numbers."""
        return {**vars(self), "newest": list(self.newest)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; the threshold is the present config's."""
        state = {name: numbers_only(value) for name, value in state.items() if name in vars(self)}
        vars(self).update(state, newest=deque(state["newest"], maxlen=2 * RETURN_WINDOW), threshold=self.threshold)


class Rule:
    """One kind of trouble. It sees every epoch and says what it finds wrong with it."""

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """What holds now. A rule whose metric is not in this row says what it said before."""
        return ()

    def get_state(self) -> dict[str, Any]:
        """What a resumed run needs to find the same."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""


class NotFinite(Rule):
    """NaN or infinity in any logged metric: one finding, however many there are."""

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """The first such metric, and how many more."""
        # Only for NaN and the infinities is x - x not 0.
        bad = [name for name, value in moment.row.items() if value - value != 0.0 and not name.startswith("sys/")]
        if not bad:
            return ()
        more = f", and {len(bad) - 1} more metrics are not finite" if len(bad) > 1 else ""
        return (Finding("not_finite", bad[0], f"{bad[0]} is {moment.row[bad[0]]}{more}."),)


class StepNotIncreasing(Rule):
    """An epoch that should have collected has no more env steps than the one before; in any other they may not go back."""

    def __init__(self) -> None:
        self.before = -1

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """Compare with the epoch before."""
        before, self.before = self.before, moment.env_steps
        if moment.env_steps > before or (moment.env_steps == before and not moment.collecting):
            return ()
        message = f"{ENV_STEPS} is {moment.env_steps:,} after an epoch that began at {before:,}."
        return (Finding("step_not_increasing", ENV_STEPS, message),)

    def get_state(self) -> dict[str, Any]:
        """Env steps of the newest epoch."""
        return {"before": self.before}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        self.before = int(state["before"])


@dataclass(slots=True)
class _Watched:
    """A metric with bounds."""

    low: float
    high: float
    points: deque[float] = field(default_factory=lambda: deque(maxlen=MEAN_POINTS))
    outside: int = 0
    """Points in a row at which the mean was below (negative) or above its bounds."""


class Bounds(Rule):
    """The mean of a metric's newest 5 points is outside [min, max] of metrics.yaml.

    One point outside is noise: an estimated KL, for one, may be slightly negative.
    """

    def __init__(self, styles: MetricStyles) -> None:
        self.styles = styles
        self._watched: dict[str, _Watched | None] = {}
        self._found: dict[str, Finding] = {}
        self._first_rate: float | None = None

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """Judge the metrics of this row; those it does not have stay as they were judged last."""
        row, known = moment.row, self._watched
        rate = row.get(LEARNING_RATE)
        if self._first_rate is None:
            self._first_rate = rate
        annealed = rate is not None and self._first_rate is not None and rate < ANNEALED * self._first_rate
        for name, value in row.items():
            watched = known[name] if name in known else self._watch(name)
            if watched is None or not _is_finite(value):
                continue
            watched.points.append(value)
            if len(watched.points) == MEAN_POINTS:
                self._compare(name, watched, done=moment.returns.done, annealed=annealed)
        return self._found.values()

    def _watch(self, name: str) -> _Watched | None:
        style = self.styles[name]
        watched = None
        if not name.startswith(NOT_JUDGED) and not (style.min is None and style.max is None):
            low = -float("inf") if style.min is None else style.min
            watched = _Watched(low, float("inf") if style.max is None else style.max)
        self._watched[name] = watched
        return watched

    def _compare(self, name: str, watched: _Watched, *, done: bool, annealed: bool) -> None:
        mean = sum(watched.points) / MEAN_POINTS
        if watched.low <= mean <= watched.high:
            watched.outside = 0
            self._found.pop(name, None)
            return
        side, bound, word = ("min", watched.low, "below") if mean < watched.low else ("max", watched.high, "above")
        alert = IDS_OF_BOUNDS.get((name, side), "out_of_bounds")
        step = -1 if side == "min" else 1
        explained = (done and alert in LASTING) or (annealed and alert in SMALL_STEPS)
        watched.outside = 0 if explained else watched.outside + step if watched.outside * step > 0 else step
        if abs(watched.outside) < (LASTING_POINTS if alert in LASTING else 1):
            self._found.pop(name, None)
            return
        lasted = f" for {abs(watched.outside)} points" if alert in LASTING else ""
        message = f"{name} is {mean:.4g} (mean of {MEAN_POINTS} points), {word} {bound:g}{lasted}."
        self._found[name] = Finding(alert, name, message)

    def get_state(self) -> dict[str, Any]:
        """Points, how long each mean was outside, and what holds."""
        watched = {name: metric for name, metric in self._watched.items() if metric is not None}
        return {
            "points": {name: list(metric.points) for name, metric in watched.items()},
            "outside": {name: metric.outside for name, metric in watched.items() if metric.outside},
            "found": [list(finding) for finding in self._found.values()],
            "first_rate": self._first_rate,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take them back; a metric whose bounds are gone from metrics.yaml is left out."""
        points, outside = numbers_only(state["points"]), numbers_only(state["outside"])
        for name in points:
            watched = self._watch(name)
            if watched is not None:
                watched.points.extend(points[name])
                watched.outside = outside.get(name, 0)
        found = (Finding(*fields) for fields in state["found"])
        self._found = {finding.metric: finding for finding in found if self._watched.get(finding.metric)}
        self._first_rate = numbers_only(state["first_rate"])


class EntropyCollapse(Rule):
    """The policy's entropy, as a mean of 5 points, is below 25% of its start, the mean of its first 3 points.

    A share has a meaning only for a number that ends at 0: the entropy of discrete actions. That of continuous ones has no
    lowest value and depends on the unit of the action, so it is judged only for as long as start and mean are positive.
    """

    def __init__(self) -> None:
        self.first: list[float] = []
        self.newest: deque[float] = deque(maxlen=MEAN_POINTS)
        self.judgeable = True
        """False once a value was negative: an entropy of continuous actions."""

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """Compare the mean with the start, unless the task is done: a policy that knows what to do has little entropy."""
        value = moment.row.get(ENTROPY)
        if value is not None and _is_finite(value):
            self.judgeable &= value >= 0
            self.newest.append(value)
            if len(self.first) < START_POINTS:
                self.first.append(value)
        if not self.judgeable or len(self.newest) < MEAN_POINTS or moment.returns.done:
            return ()
        start, mean = sum(self.first) / START_POINTS, sum(self.newest) / MEAN_POINTS
        if mean >= ENTROPY_SHARE * start:
            return ()
        message = f"{ENTROPY} is {mean:.3g}, {mean / start:.0%} of its start {start:.3g}."
        return (Finding("entropy_collapse", ENTROPY, message),)

    def get_state(self) -> dict[str, Any]:
        """The first points and the newest."""
        return {"first": self.first, "newest": list(self.newest), "judgeable": self.judgeable}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        self.first, self.judgeable = list(numbers_only(state["first"])), state["judgeable"]
        self.newest.extend(numbers_only(state["newest"]))


class ReturnStalled(Rule):
    """Neither a window of 8 nor an evaluation was better by 2% of the way to the goal for 5 windows and a quarter of the run.

    Never before point 48, since learning may start late. A task that is done has nowhere to go; one that was done before
    counts again when a quarter of the way is lost.
    """

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """Count the points since the newest improvement."""
        returns = moment.returns
        waited = returns.count - returns.marked_at
        if waited < max(STALL_WINDOWS * RETURN_WINDOW, STALL_SHARE * returns.count) or returns.count <= RETURN_WINDOW:
            return ()
        if returns.done or (returns.reached and not returns.lost):
            return ()
        goal = "" if returns.threshold is None else f", goal {returns.threshold:g}"
        figures = f"{returns.mean:.4g} now, {returns.best:.4g} at its best{goal}"
        return (
            Finding("return_stalled", TRAIN_RETURN, f"{TRAIN_RETURN} has not improved for {waited} epochs: {figures}."),
        )


class ReturnDeclining(Rule):
    """The mean of the newest 8 is a quarter of the way to the goal below the best one, and below the 8 before it.

    Below by more than twice the usual move from one point to the next, which noise around a level does not reach.
    """

    def judge(self, moment: Moment) -> Iterable[Finding]:
        """Compare the newest two windows with each other and with the best."""
        returns = moment.returns
        if len(returns.newest) < 2 * RETURN_WINDOW or not returns.lost:
            return ()
        points = list(returns.newest)
        noise = sum(abs(b - a) for a, b in pairwise(points)) / (len(points) - 1)
        if returns.mean >= sum(points[:RETURN_WINDOW]) / RETURN_WINDOW - 2 * noise:
            return ()
        message = f"{TRAIN_RETURN} is {returns.mean:.4g} (mean of {RETURN_WINDOW} epochs) and was {returns.best:.4g} at its best."
        return (Finding("return_declining", TRAIN_RETURN, message),)


def _is_finite(value: float) -> bool:
    return value - value == 0.0
