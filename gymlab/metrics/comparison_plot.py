"""The picture of a comparison: curves with their bands, and beside them the aggregates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymlab.metrics.comparison import Comparison, GroupResult
from gymlab.metrics.plots import THRESHOLD, colours, empty_figure, save_figure, short_number, style_axes
from gymlab.metrics.statistics import binned_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_HEIGHT = 3.6
MEASURES = (("iqm", "IQM", "o"), ("mean", "mean", "D"), ("median", "median", "s"))


def comparison_picture(
    comparison: Comparison,
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    thresholds: Mapping[str, float] | None = None,
) -> Path:
    """A row for each environment: the IQM over seeds along the training, and the scores; a last row where they are normalised."""
    rows = len(comparison.environments) + bool(comparison.normalised)
    figure = empty_figure(11, ROW_HEIGHT * rows + 0.4)
    grid = figure.add_gridspec(rows, 2, width_ratios=(2.3, 1))
    shades = dict(zip(comparison.groups, colours(len(comparison.groups)), strict=True))
    for row, environment in enumerate(comparison.environments):
        results = [result for result in comparison.results if result.environment == environment]
        axes = figure.add_subplot(grid[row, 0])
        shown = _draw_curves(axes, results, shades, (thresholds or {}).get(environment))
        style_axes(axes, title=environment, note=" and ".join(["IQM", *shown]) + " over runs")
        _label_curves(axes, xlabel, ylabel)
        _draw_aggregates(figure.add_subplot(grid[row, 1]), results, shades, "score, 95% interval from 5 runs on")
    if comparison.normalised:
        axes = figure.add_subplot(grid[rows - 1, :])
        _draw_aggregates(axes, comparison.normalised, shades, "normalised: 0 is chance, 1 is solved")
        axes.set_title("all environments", loc="left", fontsize=12, fontweight="bold")
    return save_figure(figure, path)


def _draw_curves(
    axes: Axes, results: Sequence[GroupResult], shades: Mapping[str, str], threshold: float | None
) -> list[str]:
    """Draw the curves; what their bands are, each once."""
    shown: dict[str, None] = {}
    for result in results:
        drawn = [run.curve for run in result.runs if run.curve[0].size]
        if not drawn:
            continue
        # No more bins than evaluations: between them there is nothing to draw.
        bins = min(60, max(curve[0].size for curve in drawn))
        band = binned_curves([curve[0] for curve in drawn], [curve[1] for curve in drawn], bins=bins, statistic="iqm")
        count = f"{len(drawn)} run{'s' if len(drawn) > 1 else ''}"
        axes.plot(band.steps, band.middle, color=shades[result.group], linewidth=2, label=f"{result.group} ({count})")
        if len(drawn) > 1:
            axes.fill_between(band.steps, band.low, band.high, color=shades[result.group], alpha=0.18, linewidth=0)
            shown[band.words] = None
    if threshold is not None:
        label = f"solved at {threshold:g}"
        axes.axhline(threshold, color=THRESHOLD, linestyle="--", linewidth=1.2, label=label, zorder=1)
    return list(shown)


def _label_curves(axes: Axes, xlabel: str, ylabel: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlim(left=0)
    axes.margins(x=0.02, y=0.06)


def _draw_aggregates(axes: Axes, results: Sequence[GroupResult], shades: Mapping[str, str], xlabel: str) -> None:
    """A line for each measure of each group, with the group's name above its three."""
    places, names = [], []
    for place, result in enumerate(results):
        for offset, (measure, name, marker) in enumerate(MEASURES):
            found, y = getattr(result, measure), place * 4 + offset
            if found.low is not None and found.high is not None:
                axes.plot(
                    [found.low, found.high],
                    [y, y],
                    color=shades[result.group],
                    linewidth=6,
                    alpha=0.35,
                    solid_capstyle="butt",
                )
            axes.plot(found.mean, y, marker=marker, color=shades[result.group], markersize=6)
            places.append(y)
            names.append(name)
    style_axes(axes)
    axes.set_yticks(places, names, fontsize=8)
    axes.set_ylim(len(results) * 4 - 1.2, -0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(xlabel)
    axes.margins(x=0.08)
