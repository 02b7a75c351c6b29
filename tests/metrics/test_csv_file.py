import csv
import math
import os

import numpy as np
import pytest

from gymlab.errors import GymlabError, RunGone
from gymlab.metrics.csv_file import CsvSink, last_row, read_metrics, truncate_after
from gymlab.metrics.names import ENV_STEPS, EPOCH


def row(env_steps, **metrics):
    return {ENV_STEPS: env_steps, EPOCH: env_steps // 8, **{f"train/{name}": value for name, value in metrics.items()}}


def test_floats_read_back_to_the_bit(tmp_path):
    path = tmp_path / "metrics.csv"
    values = [0.1, 1 / 3, 1e-308, -0.0, math.pi * 1e20, float("inf"), np.float64(0.1), np.float32(0.1)]
    sink = CsvSink(path)
    for index, value in enumerate(values):
        sink.log(row(index, x=value), index)
    sink.close()
    assert read_metrics(path)["train/x"] == [float(value) for value in values]
    assert str(read_metrics(path)["train/x"][3]) == "-0.0"
    assert read_metrics(path)[ENV_STEPS] == list(range(8))


@pytest.mark.parametrize("other", [None, "train/x\n7\n"])
def test_a_file_that_is_deleted_or_replaced_is_written_anew_with_all_its_rows(tmp_path, caplog, other):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path, write_seconds=0.0)
    sink.log(row(1, x=0.5), 1)
    path.unlink()
    if other is not None:
        path.write_text(other)
    sink.log(row(2, x=1.5, y=2.5), 2)
    sink.log(row(3, x=3.5), 3)
    sink.close()
    assert read_metrics(path)[ENV_STEPS] == [1, 2, 3]
    assert read_metrics(path)["train/y"] == [None, 2.5, None]
    assert caplog.text.count("was deleted or replaced while the run trained") == 1


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_file_in_its_place_is_an_error_that_names_it(tmp_path, put):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path, write_seconds=0.0)
    path.unlink()
    put(path)
    with pytest.raises(GymlabError, match=r"metrics\.csv is a .* where a run has a regular file"):
        sink.log(row(1), 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_that_is_gone_or_another_is_not_written_to(tmp_path):
    (tmp_path / "run").mkdir()
    sink = CsvSink(tmp_path / "run" / "metrics.csv", write_seconds=0.0)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(RunGone):
        sink.log(row(1), 1)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.raises(RunGone):
        sink.close()
    assert list((tmp_path / "run").iterdir()) == []


def test_rows_wait_for_at_most_a_second_and_not_through_a_long_phase(tmp_path):
    path = tmp_path / "metrics.csv"
    now = [0.0]
    sink = CsvSink(path, write_seconds=1.0, clock=lambda: now[0])

    def logged_at(seconds, env_steps):
        now[0] = seconds
        sink.log(row(env_steps), env_steps)
        return read_metrics(path)[ENV_STEPS]

    assert logged_at(0.0, 1) == [1]
    assert logged_at(0.5, 2) == [1]
    assert logged_at(1.0, 3) == [1, 2, 3]
    assert logged_at(1.5, 4) == [1, 2, 3]
    sink.set_phase("evaluation")
    assert read_metrics(path)[ENV_STEPS] == [1, 2, 3, 4]
    assert logged_at(2.0, 5) == [1, 2, 3, 4]
    sink.flush()
    assert read_metrics(path)[ENV_STEPS] == [1, 2, 3, 4, 5]
    assert logged_at(2.5, 6) == [1, 2, 3, 4, 5]
    sink.close()
    assert read_metrics(path)[ENV_STEPS] == [1, 2, 3, 4, 5, 6]


def test_columns_may_grow_and_every_line_has_all_of_them(tmp_path):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.log(row(8, a=1.0), 8)
    sink.log(row(16, a=2.0, b=5.0), 16)
    sink.log(row(24, c=7.0), 24)
    sink.close()
    assert read_metrics(path) == {
        ENV_STEPS: [8, 16, 24],
        EPOCH: [1, 2, 3],
        "train/a": [1.0, 2.0, None],
        "train/b": [None, 5.0, None],
        "train/c": [None, None, 7.0],
    }
    with path.open() as file:
        assert {len(line) for line in csv.reader(file)} == {5}
    assert [item.name for item in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_nan_is_kept_apart_from_a_missing_value(tmp_path):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.log(row(8, a=float("nan")), 8)
    sink.log(row(16), 16)
    sink.close()
    first, second = read_metrics(path)["train/a"]
    assert math.isnan(first)
    assert second is None


def test_a_line_that_is_being_written_is_left_out_and_a_torn_one_is_cut(tmp_path):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.log(row(8, a=1.0), 8)
    sink.close()
    with path.open("a") as file:
        file.write("16,2,0.")
    assert read_metrics(path)[ENV_STEPS] == [8]
    sink = CsvSink(path)
    sink.log(row(16, a=2.0), 16)
    sink.close()
    assert read_metrics(path) == {ENV_STEPS: [8, 16], EPOCH: [1, 2], "train/a": [1.0, 2.0]}


def test_resume_cuts_what_came_after_the_checkpoint_and_equals_the_uninterrupted_file(tmp_path):
    rows = [row(8, a=0.1), row(16, a=0.2), row(24, a=0.3, b=1.5), row(32, a=0.4)]
    whole, resumed = tmp_path / "whole.csv", tmp_path / "resumed.csv"
    for path, logged in ((whole, rows), (resumed, rows[:3])):
        sink = CsvSink(path)
        for one in logged:
            sink.log(one, one[ENV_STEPS])
        sink.close()
    assert truncate_after(resumed, 16) == 1
    assert "train/b" not in read_metrics(resumed)
    sink = CsvSink(resumed)
    for one in rows[2:]:
        sink.log(one, one[ENV_STEPS])
    sink.close()
    assert resumed.read_bytes() == whole.read_bytes()


def test_rows_of_a_phase_without_env_steps_are_cut_by_epoch(tmp_path):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    for epoch in (1, 2, 3):
        sink.log({ENV_STEPS: 8, EPOCH: epoch}, 8)
    sink.close()
    assert truncate_after(path, 8, epoch=2) == 1
    assert read_metrics(path)[EPOCH] == [1, 2]


def test_cutting_everything_leaves_a_file_that_can_be_continued(tmp_path):
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.log(row(8, a=1.0), 8)
    sink.close()
    assert truncate_after(path, 0) == 1
    assert read_metrics(path) == {}
    sink = CsvSink(path)
    sink.log(row(8, a=2.0), 8)
    sink.close()
    assert read_metrics(path)["train/a"] == [2.0]


def test_no_file_and_bad_names_are_errors_that_say_so(tmp_path):
    with pytest.raises(GymlabError, match="No metrics at"):
        read_metrics(tmp_path / "metrics.csv")
    sink = CsvSink(tmp_path / "metrics.csv")
    with pytest.raises(GymlabError, match="a,b"):
        sink.log({"a,b": 1.0}, 0)
    sink.close()


def test_the_last_row_of_a_file_that_is_being_written(tmp_path):
    path = tmp_path / "metrics.csv"
    assert last_row(path) == {}
    path.write_text("a,b,c\n")
    assert last_row(path) == {}
    path.write_text("a,b,c\n1,2,3\n4,,6.5\n7,8")
    assert last_row(path) == {"a": 4.0, "c": 6.5}
    path.write_text("a,b\n1,2\n" + "3,4\n" * 50_000 + "5,6\n")
    assert last_row(path) == {"a": 5.0, "b": 6.0}
    path.write_text("a,b\nnonsense,2\n")
    with pytest.raises(GymlabError, match=r"metrics\.csv is damaged"):
        last_row(path)
