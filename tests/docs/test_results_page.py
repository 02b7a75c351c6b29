"""The page of results: what was trained here is told anew, what was trained elsewhere stays."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.claims import Claim
from benchmarks.orderings import Ordering
from benchmarks.results_page import INTRODUCTION, rows_of, section_of, without_bootstrap, write_page
from gymlab.api import train
from gymlab.metrics.names import WALL_SECONDS
from gymlab.metrics.report import format_duration

HERE = Claim("CartPole-v1:ppo", (0,), at_least=1)
ELSEWHERE = Claim("Taxi-v4:ppo", (0, 1), at_least=7)
NOWHERE = Claim("Acrobot-v1:ppo", (0,), at_least=-100)
ORDERING = Ordering("Kinds", "kinds", {"FrozenLake-v1:ppo": "some"}, (0,), 1.0)
PAGE = f"""{INTRODUCTION}
| experiment | return [95% interval, seeds] | seeds | reached | env steps | wall time | command | commit |
|---|---|---|---|---|---|---|---|
| `CartPole-v1:ppo` | 3.0 (n=1, no interval) | 0 | 1/1 ≥ 1 | 20 | 2.0 s | `old` | `aaaaaaaaa` |
| `Gone-v1:ppo` | 3.0 (n=1, no interval) | 0 | 1/1 ≥ 1 | 20 | 2.0 s | `old` | `aaaaaaaaa` |
| `Taxi-v4:ppo` | 8.0 [7.0, 9.0] | 0-1 | 2/2 ≥ 7 | 20 | 2.0 s | `kept` | `bbbbbbbbb` |

![Taxi-v4:ppo](images/taxi-v4-ppo.png)

## Kinds

| experiment | | training return over the budget | at its end | final agent | env steps to a training return of 1, by seed |
|---|---|---|---|---|---|
| `Taxi-v4:ppo` | some | 1 | 2 | 3 | 4 |

## Only smoked

| experiment | |
|---|---|
| `Pong` | PASS |
"""


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    train(HERE.experiment, seed=0, max_env_steps=256, runs_dir=directory, run_id=f"{HERE.slug}-s0")
    return directory


def test_new_results_take_the_place_of_old_ones_and_others_stay(tmp_path, runs_dir):
    page = tmp_path / "results.md"
    page.write_text(PAGE)
    write_page([NOWHERE, HERE, ELSEWHERE], [ORDERING], runs_dir, page)
    text = page.read_text()
    rows = rows_of(text.splitlines())
    assert list(rows) == ["CartPole-v1:ppo", "Taxi-v4:ppo"]
    assert "| 256 |" in rows["CartPole-v1:ppo"]
    assert rows["Taxi-v4:ppo"] == (
        "| `Taxi-v4:ppo` | 8.0 (range 7.0 to 9.0) | 0-1 | 2/2 ≥ 7 (the task's own: 7.5) | 20 | not recorded (2.0 s) | `kept` "
        "| `bbbbbbbbb` | not recorded | not recorded |"
    )
    assert section_of(text, "Only smoked") == section_of(PAGE, "Only smoked")
    assert "Date, commit and processor: not recorded." in section_of(text, "Kinds")
    assert section_of(text, "Kinds")[-2] == section_of(PAGE, "Kinds")[-2]
    assert (tmp_path / "images" / "cartpole-v1-ppo.png").stat().st_size > 5000
    assert "![Taxi-v4:ppo](images/taxi-v4-ppo.png)" in text
    write_page([NOWHERE, HERE, ELSEWHERE], [ORDERING], runs_dir, page)
    assert page.read_text() == text


def test_a_row_says_what_it_was_measured_before(tmp_path, runs_dir):
    page = tmp_path / "results.md"
    page.write_text(PAGE)
    changed = [replace(claim, before="a change") for claim in (HERE, ELSEWHERE)]
    for _ in range(2):
        write_page(changed, [], runs_dir, page)
        rows = rows_of(page.read_text().splitlines())
        assert "| `kept` | `bbbbbbbbb` (before: a change) | not recorded |" in rows["Taxi-v4:ppo"]
        assert "before" not in rows["CartPole-v1:ppo"]  # trained here
    write_page([HERE, ELSEWHERE], [], runs_dir, page)
    assert "| `kept` | `bbbbbbbbb` | not recorded |" in rows_of(page.read_text().splitlines())["Taxi-v4:ppo"]


def test_a_row_trained_here_has_date_wall_time_and_both_thresholds(tmp_path, runs_dir):
    page = tmp_path / "results.md"
    write_page([HERE], [], runs_dir, page)
    cells = rows_of(page.read_text().splitlines())[HERE.label].strip("| ").split(" | ")
    record = HERE.run(runs_dir, 0).record
    assert cells[3] == "1/1 ≥ 1 (the task's own: 475)"
    assert (
        cells[5]
        == f"{format_duration(record['wall_seconds'])} ({format_duration(HERE.run(runs_dir, 0).metrics[WALL_SECONDS][-1])})"
    )
    assert cells[8] == time.strftime("%Y-%m-%d", time.gmtime(record["started"]))
    assert len(cells) == 10


def test_intervals_of_the_bootstrap_are_called_what_they_are():
    assert without_bootstrap("498.6 [496.6, 500.0]", 5) == "498.6 (bootstrap [496.6, 500.0], too narrow)"
    assert without_bootstrap("500.0 [500.0, 500.0]", 5) == "500.0 (all 5 equal)"
    assert without_bootstrap("3.0 (n=1, no interval)", 1) == "3.0 (n=1, no interval)"
    # Of three values the interval went from the least to the greatest.
    draws = np.array([1.0, 2.0, 4.0])[np.random.default_rng(0).integers(3, size=(2000, 3))].mean(axis=1)
    assert np.percentile(draws, [2.5, 97.5]).tolist() == [1.0, 4.0]
    assert without_bootstrap("2.333 [1.000, 4.000]", 3) == "2.333 (range 1.000 to 4.000)"


def test_a_first_page_tells_what_is_there(tmp_path, runs_dir):
    page = tmp_path / "results.md"
    write_page([HERE, ELSEWHERE], [ORDERING], runs_dir, page)
    assert list(rows_of(page.read_text().splitlines())) == ["CartPole-v1:ppo"]
    assert "##" not in page.read_text()


def test_what_was_smoked_here_is_told_anew(tmp_path, runs_dir):
    results = [{"name": name, "state": "PASS", "message": ""} for name in ("CartPole-v1:ppo", "Other-v1:ppo")]
    (runs_dir / "smoke.json").write_text(json.dumps({"timesteps": 100, "results": results}))
    page = tmp_path / "results.md"
    page.write_text(PAGE)
    write_page([HERE, ELSEWHERE], [], runs_dir, page)
    (runs_dir / "smoke.json").unlink()
    smoked = section_of(page.read_text(), "Only smoked")
    assert [line for line in smoked if line.startswith("| `")] == ["| `Other-v1:ppo` | PASS |"]
