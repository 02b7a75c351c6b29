"""Pictures for reports and results pages: learning curves over env steps, or over epochs where these stand still."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gymlab.metrics.names import ENV_STEPS, EPOCH, episode_return
from gymlab.metrics.statistics import binned_curves
from gymlab.metrics.terminal import clean
from gymlab.plain_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Table = Mapping[str, Sequence[float | None]]
    """metrics.csv by column, as `read_metrics` gives it."""

TRAINING = "#9aa5b1"
EVALUATION = "#1f6fb2"
MARKERS = ("D", "s", "^", "v", "o")
"""Shapes of the figures of others."""
THRESHOLD = "#3c4650"
COLOURS = ("#1f6fb2", "#d1495b", "#2e8b57", "#edae49", "#7b4fa3", "#00798c", "#8d6e63")
"""Told apart by people with the common colour blindnesses too, in this order."""
_SMOOTH_POINTS = 300
"""Training curves with more epochs than this are drawn as means over bins: more would be a band of ink."""


def learning_curve(
    rows: Table,
    path: str | Path,
    *,
    threshold: float | None = None,
    title: str = "",
) -> Path:
    """One run: training return, evaluation return with its 95% interval, and the threshold."""
    figure, axes = _new_figure()
    x = progress([rows])
    training = points(rows, episode_return("train"), x)
    evaluation = points(rows, episode_return("val"), x)
    if training[0].size:
        steps, values = _thinned(*training)
        axes.plot(steps, values, color=TRAINING, linewidth=1.4, label="training (mean of newest 100 episodes)")
    if evaluation[0].size:
        steps, values = evaluation
        axes.plot(steps, values, color=EVALUATION, linewidth=2, marker="o", markersize=4, label="evaluation")
        low, high = (points(rows, episode_return("val", f"ci95_{end}"), x) for end in ("low", "high"))
        if low[0].size > 1 and np.array_equal(low[0], high[0]):
            axes.fill_between(low[0], low[1], high[1], color=EVALUATION, alpha=0.2, linewidth=0, label="95% interval")
        elif low[0].size == high[0].size == 1:
            axes.vlines(low[0], low[1], high[1], color=EVALUATION, alpha=0.5, linewidth=4, label="95% interval")
    if threshold is not None:
        _draw_threshold(axes, threshold)
    return _finish(figure, axes, path, title=title, ylabel="episode return", x=x)


def curves(
    groups: Mapping[str, Sequence[Table]],
    path: str | Path,
    *,
    metric: str | Mapping[str, str] | None = None,
    threshold: float | None = None,
    title: str = "",
    bins: int = 60,
    marks: Mapping[str, tuple[float, float]] | None = None,
    goal: str = "solved at",
) -> Path:
    """Groups of runs that differ in their seed: mean over seeds by env step with the 95% interval, or the range of few.

    `metric` is one for all groups (the training return, if none is given) or one for each. A run that ended early keeps its
    last value to the end of the axis. `marks` are figures of others, by name: env steps and value.
    `goal` is what the threshold is called.
    """
    figure, axes = _new_figure()
    shown: dict[str, None] = {}
    chosen = metric if isinstance(metric, Mapping) else dict.fromkeys(groups, metric or episode_return("train"))
    x = progress([table for tables in groups.values() for table in tables])
    for colour, (label, tables) in zip(colours(len(groups)), groups.items(), strict=True):
        name = chosen[label]
        found = [point for point in (points(table, name, x) for table in tables) if point[0].size]
        if not found:
            continue
        band = binned_curves([p[0] for p in found], [p[1] for p in found], bins=bins)
        seeds = f"{len(found)} seed{'s' if len(found) > 1 else ''}"
        axes.plot(band.steps, band.middle, color=colour, linewidth=2, label=f"{label} ({seeds})")
        if len(found) > 1:
            axes.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
            shown[band.words] = None
    for marker, (label, place) in zip(itertools.cycle(MARKERS), (marks or {}).items(), strict=False):
        axes.scatter(*place, marker=marker, color=THRESHOLD, s=45, label=label, clip_on=False, zorder=3)
    if threshold is not None:
        _draw_threshold(axes, threshold, goal)
    names = set(chosen.values())
    ylabel = "episode return" if all(name.endswith("roll/ep_rew/mean") for name in names) else ", ".join(sorted(names))
    return _finish(
        figure, axes, path, title=title, ylabel=ylabel, note=" and ".join(["mean", *shown]) + " over seeds", x=x
    )


def empty_figure(width: float = 8, height: float = 4.5) -> Figure:
    """A figure that draws to files. Its canvas is made directly: pyplot would choose a backend for the whole process and
    keep every figure alive.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _new_figure() -> tuple[Figure, Axes]:
    figure = empty_figure()
    return figure, figure.add_subplot()


def progress(tables: Sequence[Table]) -> str:
    """What curves are drawn over: env steps, or epochs where the environment was left before there was anything to evaluate."""
    seen = [points(table, episode_return("val"))[0] for table in tables]
    still = [steps.size > 1 and steps[0] == steps[-1] for steps in seen]
    return EPOCH if still and all(still) else ENV_STEPS


def points(rows: Table, name: str, x: str = ENV_STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Env steps (or another column) and values of the rows that have a finite value."""
    pairs = [
        (step, value)
        for step, value in zip(rows.get(x, ()), rows.get(name, ()), strict=False)
        if step is not None and value is not None and np.isfinite(value)
    ]
    found = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if steps.size <= _SMOOTH_POINTS:
        return steps, values
    parts = np.array_split(np.arange(steps.size), _SMOOTH_POINTS)
    return np.array([steps[part].mean() for part in parts]), np.array([values[part].mean() for part in parts])


def colours(count: int) -> list[str]:
    """A colour for each of `count` curves."""
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _draw_threshold(axes: Axes, threshold: float, goal: str = "solved at") -> None:
    axes.axhline(threshold, color=THRESHOLD, linestyle="--", linewidth=1.2, label=f"{goal} {threshold:g}", zorder=1)


def _finish(figure: Figure, axes: Axes, path: str | Path, *, title: str, ylabel: str, x: str, note: str = "") -> Path:
    from matplotlib.ticker import FuncFormatter

    style_axes(axes, title=title, note=note)
    axes.set_xlabel("env steps" if x == ENV_STEPS else "epochs")
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlim(left=0)
    axes.margins(x=0.02, y=0.06)
    return save_figure(figure, path)


def style_axes(axes: Axes, *, title: str = "", note: str = "") -> None:
    """The one look of all pictures: a calm grid, no box, a legend on white."""
    if title:
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    if note:
        axes.set_title(note, loc="right", fontsize=9, color="#6b7580")
    axes.grid(color="#e3e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#8a949e")
    axes.tick_params(colors="#4a545e")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=True, facecolor="white", edgecolor="none", framealpha=0.85, fontsize=9)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a picture that appears under its name when it is whole. Names in it are letters: no formula, nothing that has no shape."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(clean(text.get_text()))
    path = Path(path)
    with replacing(path) as temporary:
        figure.savefig(temporary)
    return path


def short_number(value: float, _: object = None) -> str:
    """12,000 -> 12k, 2,500,000 -> 2.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
