"""Curves of a run's metrics for the documentation."""

from types import SimpleNamespace

import pytest

from benchmarks.curves import draw

RUN = SimpleNamespace(
    id="one",
    record={"experiment": "Somewhere-v0:delta_iris"},
    metrics={"train/cnt/updates": [0, 10, 20], "train/world_model/psnr": [None, 20.0, 30.0]},
)


def test_what_was_measured_is_drawn(tmp_path):
    draw(RUN, ["world_model/psnr"], tmp_path / "images" / "curve.png")
    assert (tmp_path / "images" / "curve.png").stat().st_size > 5000


def test_a_metric_that_the_run_has_not_is_named(tmp_path):
    with pytest.raises(SystemExit, match="one has no world_model/nothing"):
        draw(RUN, ["world_model/psnr", "world_model/nothing"], tmp_path / "curve.png")
