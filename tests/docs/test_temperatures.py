"""The temperature experiment: commands, table and picture from runs that are given."""

import argparse
from types import SimpleNamespace

import pytest

from benchmarks.temperatures import Outcome, command, draw, table

OUTCOMES = [Outcome(0.1, 2086.4, 193.2, (150.0, 230.0)), Outcome(1.15, 918.0, 1092.0, (980.0, 1200.0))]


def test_an_outcome_is_the_last_elite_and_the_final_evaluation():
    metrics = {"train/controller/return/elite": [10.0, 20.0, None]}
    run = SimpleNamespace(metrics=metrics, result={"mean": 5.0, "ci95": [4.0, 6.0]})
    assert Outcome.of(run, 0.5) == Outcome(0.5, 20.0, 5.0, (4.0, 6.0))


def test_the_table_and_the_picture(tmp_path):
    assert table(OUTCOMES).splitlines()[2:] == [
        "| 0.1 | 2086 | 193 | 150 to 230 |",
        "| 1.15 | 918 | 1092 | 980 to 1200 |",
    ]
    draw(OUTCOMES, tmp_path / "drawn.png", "a game")
    assert (tmp_path / "drawn.png").stat().st_size > 5000


@pytest.mark.parametrize("temperature", [0.1, 1.15])
def test_the_command_takes_v_and_m_of_the_run(tmp_path, temperature):
    arguments = argparse.Namespace(
        generations=3, collect=100, episodes=2, runs_dir=tmp_path, settings=["torch_threads=1"]
    )
    source = SimpleNamespace(id="first", record={"experiment": "CartPole-v1:world_models", "seed": 4})
    told = command(source, SimpleNamespace(id=f"first-t{temperature}"), temperature, arguments)
    assert told[4] == "CartPole-v1:world_models"
    assert told[told.index("--init-from-run") + 1] == "first/@last"
    assert {"reuse_model=true", f"temperature={temperature}", "generations=3", "torch_threads=1"} <= set(told)
