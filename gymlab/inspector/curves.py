"""Learning curves: any metric against env steps or time, intervals over seeds, and the marks of alerts and changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gymlab.engine.callbacks.alerts import read_alerts
from gymlab.engine.changes import ChangeLog, shown
from gymlab.engine.registry import read_entry
from gymlab.engine.run import Run
from gymlab.engine.seed_groups import seed_groups
from gymlab.errors import GymlabError
from gymlab.inspector.routes import HttpError, Inspector, Request, Response, json_response, route
from gymlab.inspector.table import Columns, MetricsTable, Tables, buckets
from gymlab.metrics import names
from gymlab.metrics.setup import USER_STYLES
from gymlab.metrics.statistics import binned_curves
from gymlab.metrics.styles import SHIPPED, MetricStyles, load_styles

PLACES = (names.ENV_STEPS, names.WALL_SECONDS)
AXES = {"env_steps": names.ENV_STEPS, "time": names.WALL_SECONDS, "generation": names.GENERATION}
MOST_METRICS, MOST_RUNS = 24, 32
SAMPLE_ROWS = 600
BAND_BINS = 80


@route("GET", "/api/runs/{run}/metrics")
def metrics(request: Request, run: str) -> Response:
    """Names of a run's metrics in the order in which they are shown, with group and meaning."""
    table = _table(request.inspector, request.run(run))
    styles = request.inspector.shared("styles", lambda: load_styles((SHIPPED, USER_STYLES)))
    found = sorted(table.names if table else [], key=styles.rank)
    return json_response({"metrics": [_described(name, styles) for name in found if name]})


def _described(name: str, styles: MetricStyles) -> dict[str, Any]:
    style = styles[name]
    return {"name": name, "group": names.namespace(name), "about": style.description, "highlight": style.highlight}


@route("GET", "/api/runs/{run}/curves", query=("metric", "axis", "points", "since", "version", "start", "end"))
def curves(request: Request, run: str) -> Response:
    """Curves of some metrics. `exact` says whether every row was read: until then they are a sample of rows.

    A page that has rows up to `since` of the same `version` gets only those after them, `from` that row on. With `start` and
    `end` only what lies between them on the axis is shown, in as many points.
    """
    wanted = _metrics(request)
    axis = AXES[request.text("axis", "env_steps", choices=tuple(AXES))]
    points = request.integer("points", 400, low=10, high=4000)
    since = request.integer("since", 0, low=0, high=10**12)
    low, high = request.number("start", -np.inf), request.number("end", np.inf)
    table = _table(request.inspector, request.run(run))
    if table is None:
        return json_response({"version": "", "rows": 0, "from": 0, "exact": True, "series": {}})
    columns, exact = _read(request.inspector, table, [axis, *wanted])
    rows = len(next(iter(columns.values()), ())) if exact else 0
    version = str(table.generation)
    whole = low == -np.inf and high == np.inf
    start = since if whole and exact and request.text("version", "") == version and 0 <= rows - since <= points else 0
    series = {}
    for name in wanted:
        if axis in columns and name in columns:
            x, y = columns[axis][start:], columns[name][start:]
            inside = slice(None) if whole else (x >= low) & (x <= high)
            series[name] = _points(x[inside], y[inside], points)
    answer = {"version": version, "rows": rows, "from": start, "exact": exact, "series": series}
    share = table.unread([axis, *wanted]) / max(1, table.bytes_on_disk)
    return json_response({**answer, "read": 1.0 if exact else round(1 - share, 3), "odd_rows": table.odd_rows})


def _points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], points: int) -> dict[str, list[float]]:
    place, mean, low, high = buckets(x, y, points)
    found = {"x": _short(place), "y": _short(mean)}
    # Single rows have no span: half of the answer is saved.
    return found if low is mean else {**found, "low": _short(low), "high": _short(high)}


def _short(values: npt.NDArray[np.float64]) -> list[float]:
    """Nine digits: more than a screen can show, half of the bytes."""
    return [float(f"{value:.9g}") for value in values.tolist()]


@route("GET", "/api/bands", query=("run", "metric", "axis"))
def bands(request: Request) -> Response:
    """Mean of metrics over seeds with the 95% interval, or the range of few: one value a run in each of some bins of the axis.

    Only runs whose settings are the same but for the seed are taken together; `notes` say by which keys others differ.
    """
    wanted = _metrics(request)
    axis = AXES[request.text("axis", "env_steps", choices=tuple(AXES))]
    chosen = [request.run(name) for name in dict.fromkeys(request.texts("run", most=MOST_RUNS))]
    usable = [entry for run in chosen if (entry := read_entry(run)) is not None and entry.env_id is not None]
    groups, notes = seed_groups(usable, lambda entry: str(entry.experiment))
    found, exact = [], True
    for group in groups:
        tables = [table for entry in group.entries if (table := _table(request.inspector, entry.run))]
        read = [_read(request.inspector, table, [axis, *wanted]) for table in tables]
        exact = exact and all(whole for _, whole in read)
        curves = _bands([columns for columns, _ in read], axis, wanted)
        found.append({"label": group.label, "runs": [entry.id for entry in group.entries], "bands": curves})
    return json_response({"groups": found, "notes": notes, "exact": exact})


def _bands(read: Sequence[Columns], axis: str, wanted: Sequence[str]) -> dict[str, Any]:
    """Each metric of one group of seeds."""
    found = {}
    for name in wanted:
        pairs = [_finite(columns[axis], columns[name]) for columns in read if axis in columns and name in columns]
        pairs = [pair for pair in pairs if len(pair[0])]
        if pairs:
            curve = binned_curves([x for x, _ in pairs], [y for _, y in pairs], bins=BAND_BINS)
            band = {"x": _short(curve.steps), "y": _short(curve.middle), "n": len(pairs)}
            around = {"low": _short(curve.low), "high": _short(curve.high), "words": curve.words}
            found[name] = band | (around if len(pairs) > 1 else {})
    return found


def _finite(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    usable = np.isfinite(x) & np.isfinite(y)
    return x[usable], y[usable]


@route("GET", "/api/runs/{run}/marks")
def marks(request: Request, run: str) -> Response:
    """Alerts with their tips, and changes of hyperparameters, each with its place on both axes."""
    found = request.run(run)
    places = _seconds_at(request.inspector, found)
    problems: list[str] = []
    alerts: list[dict[str, Any]] = []
    try:
        for recap in read_alerts(found.dir):
            alerts.append({**asdict(recap), "seconds": places(recap.first_env_steps)})
    except GymlabError as error:
        problems.append(f"The alerts of {run} cannot be read: {str(error).partition(chr(10))[0]}")
    made: list[dict[str, Any]] = []
    waiting: list[str] = []
    try:
        for change in ChangeLog(found.dir).read():
            text = f"{change.name}: {shown(change.before)} → {shown(change.to)}"
            if change.env_steps is not None:
                place = {"env_steps": change.env_steps, "seconds": places(change.env_steps)}
                made.append({"name": change.name, "text": text, "source": change.source, "time": change.time, **place})
        waiting = [f"{name}: {value}" for name, value in _waited_for(found).items()]
    except GymlabError as error:
        problems.append(f"The changes of {run} cannot be read: {str(error).partition(chr(10))[0]}")
    return json_response({"alerts": alerts, "changes": made, "waiting": waiting, "problems": problems})


def _waited_for(run: Run) -> dict[str, str]:
    """Wishes of `gymlab set` that no change has answered yet."""
    answered: set[float | None] = set()
    wishes = {}
    for change in ChangeLog(run.dir).read():
        if change.epoch is None:
            wishes[change.name] = change
        else:
            answered.add(change.asked)
    return {name: shown(wish.to) for name, wish in wishes.items() if wish.time not in answered}


def _seconds_at(inspector: Inspector, run: Run) -> Any:
    """A function from env steps to seconds since the run began; None where that is not known."""
    table = _table(inspector, run)
    columns = _read(inspector, table, PLACES)[0] if table else {}
    if len(columns) < len(PLACES):
        return lambda steps: None
    steps, seconds = _finite(columns[names.ENV_STEPS], columns[names.WALL_SECONDS])
    return lambda at: float(np.interp(at, steps, seconds)) if len(steps) else None


def _metrics(request: Request) -> list[str]:
    wanted = list(dict.fromkeys(request.texts("metric", most=MOST_METRICS)))
    if not wanted:
        raise HttpError(400, "metric is missing.")
    return wanted


def _table(inspector: Inspector, run: Run) -> MetricsTable | None:
    tables = inspector.shared("tables", Tables)
    path: Path = run.dir / "metrics.csv"
    return tables.open(path)


def _read(inspector: Inspector, table: MetricsTable, wanted: Sequence[str]) -> tuple[Columns, bool]:
    """The columns and whether they are whole; a sample of rows while a long file is being read."""
    whole = inspector.shared("tables", Tables).read(table, wanted)
    if table.damage:
        raise GymlabError(table.damage)
    if whole:
        return table.columns(wanted), True
    return table.sample(wanted, SAMPLE_ROWS), False
