"""The Episode tab's numbers are those of the agent itself; wishes are bounded; what is kept is bounded too."""

import csv
import io
import json
import shutil
import time

import numpy as np
import pytest
from asking import ask, played, rows_apart, told

from gymlab.inspector import traces as traces_module
from gymlab.inspector.frames import decode
from gymlab.inspector.routes import HttpError, Inspector
from gymlab.inspector.traces import Trace, Traces, Wish
from gymlab.metrics.video import frame_count


@pytest.fixture(scope="module")
def inspector(trained):
    return Inspector(trained)


@pytest.mark.parametrize(("run", "deterministic"), [("cartpole-s1", False), ("cartpole-s1", True), ("lake", False)])
def test_the_table_shows_what_the_agent_does_by_itself(inspector, trained, run, deterministic):
    expected = rows_apart(run, trained, seed=11, deterministic=deterministic, steps=60)
    trace = played(inspector, run, deterministic=deterministic, seed=11, steps=60)
    assert trace["status"] == "done"
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    assert table["total"] == 60
    for name in ("action", "value", "reward", "cumulative_reward", "probabilities"):
        wanted = np.array([row[name] for row in expected], dtype=float)
        np.testing.assert_allclose(np.array(table[name], dtype=float), wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(table["mc_return"], [row["mc_return"] for row in expected], rtol=1e-5, atol=1e-7)
    ends = [end in ("terminated", "truncated") for end in table["end"]]
    assert ends == [row["ended"] for row in expected]
    greedy = [row["probabilities"][row["action"]] == max(row["probabilities"]) for row in expected]
    assert table["greedy"] == greedy


def test_frames_are_the_environments_and_the_networks(inspector, trained):
    expected = rows_apart("pixels", trained, seed=5, deterministic=True, steps=8)
    trace = played(inspector, "pixels", seed=5, steps=8)
    assert trace["views"] == ["raw", "processed", "stacked"]
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    for row, frame in zip(expected, table["frame"], strict=True):
        address = f"/api/traces/{trace['id']}/frames/{frame}"
        raw = decode(ask(inspector, address).body).astype(int)
        assert np.abs(raw - row["frame"]).mean() < 2  # kept as JPEG
        stack = row["observation"]
        strip = decode(ask(inspector, address, view="stacked").body)
        np.testing.assert_array_equal(strip, np.concatenate(list(stack), axis=1))
        np.testing.assert_array_equal(decode(ask(inspector, address, view="processed").body), stack[-1])


def test_the_end_of_an_episode_has_a_frame_of_its_own(inspector):
    trace = played(inspector, "lake", deterministic=False, seed=1, steps=60)
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    ended = [row for row, end in enumerate(table["end"]) if end in ("terminated", "truncated")]
    assert ended
    assert trace["frames"] == 60 + len(ended)
    assert table["frame"][ended[0] + 1] == table["frame"][ended[0]] + 2


def test_the_observation_in_numbers(inspector, trained):
    expected = rows_apart("cartpole-s1", trained, seed=4, deterministic=True, steps=5)
    trace = played(inspector, "cartpole-s1", seed=4, steps=5)
    found = told(inspector, f"/api/traces/{trace['id']}/observations/3")
    np.testing.assert_allclose(found["observation"], expected[3]["observation"], rtol=1e-6)
    way = told(inspector, f"/api/traces/{trace['id']}/path", x=2, y=3)
    np.testing.assert_allclose(way["x"], [row["observation"][2] for row in expected], rtol=1e-6)
    assert way["first"] == [True, False, False, False, False]


def test_the_csv_is_the_table(inspector):
    trace = played(inspector, "lake", deterministic=False, seed=2, steps=40)
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    response = ask(inspector, f"/api/traces/{trace['id']}/steps.csv")
    name = f"lake-{trace['checkpoint']}-seed2-stochastic.csv".replace("=", "-")
    assert name in response.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(response.body.decode())))
    assert len(rows) == 40
    assert [int(row["action"]) for row in rows] == table["action"]
    assert [float(row["value"]) for row in rows] == table["value"]
    assert [float(row["probabilities_3"]) for row in rows] == [row[3] for row in table["probabilities"]]
    assert [float(row["info_prob"]) for row in rows] == table["info"]["prob"]
    assert {row["label"] for row in rows} <= {"left", "down", "right", "up"}


def test_the_film_has_every_frame(inspector, tmp_path):
    trace = played(inspector, "lake", deterministic=False, seed=3, steps=20)
    path = tmp_path / "film.mp4"
    path.write_bytes(ask(inspector, f"/api/traces/{trace['id']}/episode.mp4").body)
    assert frame_count(path) == trace["frames"]


def test_an_equal_wish_is_played_once(inspector):
    first = played(inspector, "cartpole-s2", seed=8, steps=10)
    second = played(inspector, "cartpole-s2", seed=8, steps=10)
    other = played(inspector, "cartpole-s2", seed=9, steps=10)
    assert first["id"] == second["id"] != other["id"]


def test_the_checkpoints_of_a_run(inspector, trained):
    found = told(inspector, "/api/runs/cartpole-s1/checkpoints")["checkpoints"]
    names = [entry["name"] for entry in found]
    on_disk = sorted(path.name.removesuffix(".ckpt") for path in (trained / "cartpole-s1/checkpoints").glob("epoch=*"))
    assert sorted(names) == on_disk
    assert [entry["epoch"] for entry in found] == sorted((entry["epoch"] for entry in found), reverse=True)
    assert sum(entry["best"] for entry in found) == 1
    assert found[0]["last"]
    assert found[0]["env_steps"] == 2048
    trace = played(inspector, "cartpole-s1", checkpoint=names[-1], steps=3)
    assert trace["checkpoint"] == names[-1]


@pytest.mark.parametrize(
    "wish",
    [
        {"steps": 0},
        {"steps": 20_001},
        {"steps": "10"},
        {"steps": True},
        {"steps": 1.5},
        {"seed": -1},
        {"seed": 2**31},
        {"deterministic": 1},
        {"checkpoint": "../../etc"},
        {"checkpoint": "epoch=9999"},
        {"checkpoint": 3},
        {"run": "../secret.txt"},
        {"run": "none"},
        {"run": None},
        {"shell": "ls"},
    ],
)
def test_wishes_are_typed_and_bounded(inspector, wish):
    with pytest.raises(HttpError) as refused:
        ask(inspector, "/api/traces", "POST", {"run": "lake", **wish})
    assert refused.value.status in (400, 404)


@pytest.mark.parametrize(
    "tail",
    ["frames/99", "frames/-1", "frames/x", "frames/0?", "observations/99", "../steps", "saliency/99"],
)
def test_places_that_do_not_exist(inspector, tail):
    trace = played(inspector, "lake", steps=5)
    with pytest.raises(HttpError) as refused:
        ask(inspector, f"/api/traces/{trace['id']}/{tail}")
    assert refused.value.status in (400, 404)
    for unknown in ("000000000000", "x", "..", "A" * 12):
        with pytest.raises(HttpError):
            ask(inspector, f"/api/traces/{unknown}")


def test_a_checkpoint_that_leads_out_of_the_run_is_not_listed(trained, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(trained / "lake", runs / "lake", symlinks=True)
    checkpoints = runs / "lake" / "checkpoints"
    real = next(path for path in checkpoints.iterdir() if not path.is_symlink())
    (checkpoints / "epoch=9998.ckpt").symlink_to(trained / "lake" / "checkpoints" / real.name)
    inside = checkpoints / "epoch=9999.ckpt"
    shutil.copytree(real, inside)
    (inside / "metrics.json").unlink()
    (inside / "metrics.json").symlink_to(trained / "lake" / "run.json")
    found = told(Inspector(runs), "/api/runs/lake/checkpoints")["checkpoints"]
    assert not {"epoch=9998", "epoch=9999"} & {entry["name"] for entry in found}


def test_a_run_without_a_checkpoint_says_so(trained, tmp_path):
    shutil.copytree(trained / "lake", tmp_path / "lake", symlinks=True)
    shutil.rmtree(tmp_path / "lake" / "checkpoints")
    inspector = Inspector(tmp_path)
    assert told(inspector, "/api/runs/lake/checkpoints") == {"checkpoints": []}
    with pytest.raises(HttpError, match="no finished checkpoint yet"):
        ask(inspector, "/api/traces", "POST", {"run": "lake"})


def test_a_rollout_can_be_stopped(inspector):
    trace = json.loads(ask(inspector, "/api/traces", "POST", {"run": "cartpole-s1", "steps": 20_000}).body)
    ask(inspector, f"/api/traces/{trace['id']}/cancel", "POST", {})
    ended = played(inspector, "cartpole-s2", seed=1, steps=2)  # played after it, so it is over
    assert ended["status"] == "done"
    stopped = told(inspector, f"/api/traces/{trace['id']}")
    assert stopped["status"] == "cancelled"
    assert stopped["played"] < 20_000
    with pytest.raises(HttpError, match="cancelled"):
        ask(inspector, f"/api/traces/{trace['id']}/steps")


def test_the_oldest_traces_are_dropped(monkeypatch):
    monkeypatch.setattr(traces_module, "MOST_TRACES", 2)
    monkeypatch.setattr(traces_module, "play", lambda trace, agent: None)
    store = Traces()
    made = [store.start(Wish("a", "b", 0.0, True, seed, 1), lambda: None) for seed in range(4)]
    end = 100
    while any(trace.status != "done" for trace in made) and end:
        time.sleep(0.02)
        end -= 1
    store._make_room()
    assert [store.get(trace.id) is not None for trace in made] == [False, False, True, True]


def test_an_environment_that_fails_is_told_in_a_sentence(monkeypatch, caplog):
    def fail(trace, agent):
        raise ZeroDivisionError("inside the environment")

    monkeypatch.setattr(traces_module, "play", fail)
    trace = Trace("0" * 12, Wish("a", "b", 0.0, True, 0, 1))
    Traces()._play(trace, lambda: None)
    assert trace.status == "failed"
    assert trace.error == "The environment failed: ZeroDivisionError: inside the environment"


def test_a_text_that_a_spreadsheet_would_run_is_quoted():
    from gymlab.inspector.episodes import _cell

    assert _cell("=1+1") == "'=1+1"
    assert _cell("north") == "north"
    assert _cell(-1.5) == -1.5
