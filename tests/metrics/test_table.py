import math

import pytest
from rich.segment import Segment

from gymlab.metrics.styles import GlobalStyle, MetricStyle, MetricStyles, load_styles
from gymlab.metrics.table import ASCII_BLOCKS, HISTORY, History, MetricsTable, format_value, pack, within_bounds


def history_of(values):
    history = History()
    for value in values:
        history.add(value)
    return history


def text_of(table, width=80, height=40, ascii_only=False):
    return ["".join(segment.text for segment in line) for line in table.lines(width, height, ascii_only)]


def test_a_sparkline_rises_with_the_values():
    assert history_of([0, 1, 2, 3, 4, 5, 6, 7]).sparkline(8) == "▁▂▃▄▅▆▇█"
    assert history_of([7, 0]).sparkline(8) == "█▁"
    assert history_of([0, 0, 7, 7]).sparkline(2) == "▁█"
    assert history_of([5, 5, 5]).sparkline(8) == "▄▄▄"
    assert history_of([0, 7]).sparkline(8, ASCII_BLOCKS) == "_#"
    assert history_of([]).sparkline(8) == ""


def test_a_history_keeps_the_whole_past_in_little_room():
    history = history_of(range(10_000))
    assert len(history.means) < HISTORY
    assert history.means == sorted(history.means)
    assert history.means[0] == (history.span - 1) / 2
    assert history.latest == 9999
    assert history.sparkline(8) == "▁▂▃▄▅▆▇█"


def test_values_that_are_not_finite_leave_the_sparkline_alone():
    history = history_of([1.0, math.nan, 2.0, math.inf])
    assert history.sparkline(8) == "▁█"
    assert history.latest == math.inf


def test_improvement_is_over_the_best_so_far():
    history = History()
    marks = []
    for value in (1.0, 3.0, 2.0, 3.0, 4.0):
        history.add(value)
        marks.append(history.improved)
    assert marks == [True, True, False, False, True]
    assert history.best == 4.0


@pytest.mark.parametrize(
    ("value", "precision", "shown"),
    [
        (487.256, 2, "487.26"),
        (12345.6, 0, "12,346"),
        (0.0, 3, "0.000"),
        (0.00012, 3, "1.20e-04"),
        (3e-4, 6, "0.000300"),
        (5e12, 2, "5.00e+12"),
        (math.nan, 2, "nan"),
        (-0.5, 1, "-0.5"),
    ],
)
def test_values_are_shown_with_their_precision(value, precision, shown):
    assert format_value(value, MetricStyle(precision=precision)) == shown


def test_bounds():
    style = MetricStyle(min=0, max=1)
    assert [within_bounds(value, style) for value in (-0.1, 0, 1, 1.1, math.nan)] == [False, True, True, False, False]


def test_sections_are_packed_in_order_into_the_least_height():
    assert pack([3, 3, 3], 1) == (11, [0, 0, 0])
    assert pack([3, 3, 3], 2) == (7, [0, 0, 1])
    assert pack([3, 3, 3], 3) == (3, [0, 1, 2])
    assert pack([], 2) == (0, [])


@pytest.fixture
def table():
    table = MetricsTable(load_styles())
    row = {f"train/loss/part{index}": float(index) for index in range(12)}
    row |= {
        "train/roll/ep_rew/mean": 100.0,
        "val/roll/ep_rew/mean": 90.0,
        "train/cnt/env_steps": 1024,
        "sys/speed/env_steps": 2000.0,
    }
    table.add(row)
    return table


def test_metrics_stand_below_their_namespace_in_order_of_priority(table):
    lines = [line.strip() for line in text_of(table, width=60)]
    assert lines[0] == "val/roll"
    assert lines[1].startswith("ep_rew/mean")
    assert "90.00" in lines[1]
    assert lines.index("train/roll") < lines.index("train/loss") < lines.index("sys")
    assert not any("cnt" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (80, 8), (40, 50), (20, 5), (200, 6), (80, 2)])
def test_the_table_never_leaves_the_terminal(table, width, height):
    lines = text_of(table, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_a_low_terminal_uses_columns_and_then_drops_what_matters_least(table):
    assert len(text_of(table, 80, 40)) > len(text_of(table, 80, 14))
    short = text_of(table, 80, 8)
    assert "ep_rew/mean" in short[1]
    assert short[-1].endswith("more metrics in metrics.csv")


def test_marks_for_improvement_and_bounds():
    styles = MetricStyles({"a/x": MetricStyle(highlight=True), "a/y": MetricStyle(max=1.0)}, GlobalStyle())
    table = MetricsTable(styles)
    table.add({"a/x": 1.0, "a/y": 2.0})
    lines = text_of(table)
    assert "1.000 ▲" in lines[1]
    assert "2.000 !" in lines[2]
    table.add({"a/x": 0.5, "a/y": 0.5})
    assert not any(mark in line for line in text_of(table) for mark in "▲!")
    assert all(line.isascii() for line in text_of(table, ascii_only=True))


def test_numbers_too_long_are_never_cut():
    table = MetricsTable(MetricStyles({"a/x": MetricStyle(precision=2)}, GlobalStyle()))
    table.add({"a/x": -123_456_789.12})
    assert " -1.235e+08 " in text_of(table)[1]


def test_names_too_long_keep_their_end():
    table = MetricsTable(MetricStyles({}, GlobalStyle()))
    table.add({"train/opt/a_very_long_way_to/explained_variance": 1.0})
    assert text_of(table, width=39)[1].startswith(" ..xplained_variance  ")


def test_lines_are_segments_that_rich_can_print(table):
    assert all(isinstance(segment, Segment) for line in table.lines(80, 24) for segment in line)
