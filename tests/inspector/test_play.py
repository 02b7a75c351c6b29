"""Games of the Play tab: what a session tells is what the game is, and there are limits."""

import json

import numpy as np
import pytest
from asking import PLUGIN, ask

import gymlab
from gymlab.engine.dream_game import beginning
from gymlab.engine.playing import Game
from gymlab.inspector import play_sessions
from gymlab.inspector.frames import decode
from gymlab.inspector.play import sessions_of
from gymlab.inspector.play_sessions import heat
from gymlab.inspector.routes import HttpError, Inspector


@pytest.fixture
def inspector(dreaming_runs):
    made = Inspector(dreaming_runs)
    yield made
    for name in list(sessions_of(made)._open):
        sessions_of(made).close(name)


def opened(inspector, where, by="you", run="dreamer", **wish):
    return json.loads(ask(inspector, "/api/play", "POST", {"run": run, "where": where, "by": by, **wish}).body)


def post(inspector, session, what, **body):
    return json.loads(ask(inspector, f"/api/play/{session['id']}/{what}", "POST", body).body)


def pixels(address):
    import base64

    return decode(base64.b64decode(address.split(",")[1]))


def test_you_in_the_dream(inspector, dreaming_runs):
    session = opened(inspector, "dream", likeliest=True, seed=3)
    assert session["buttons"] == [{"keys": ["left"], "text": "push left"}, {"keys": ["right"], "text": "push right"}]
    assert session["hints"] == {"nothing": "goes on with the last action"}
    assert (session["state"]["step"], session["state"]["place"]) == (0, "in the world model")
    # Before the first key nothing is done.
    assert post(inspector, session, "step", keys=[])["moved"] is False
    moved = post(inspector, session, "step", keys=["right"])
    assert (moved["moved"], moved["step"], moved["action"]) == (True, 1, "push right")
    agent = gymlab.load("dreamer", runs_dir=dreaming_runs)
    with Game(agent.config, seed=3, render=False) as game:
        game.begin()
        state = agent.workflow.dream_start(beginning(game.observation, game.env.action_space))
    _, expected = agent.workflow.dream_step(state, np.array([1]))
    assert moved["reward"] == pytest.approx(float(expected.reward[0]), rel=1e-5)
    assert pixels(moved["frame"]).shape == (400, 600, 3)
    again = post(inspector, session, "begin")
    assert (again["episode"], again["step"]) == (2, 0)


@pytest.mark.parametrize("where", ["real", "dream"])
def test_the_agent_plays_to_the_end(inspector, where):
    session = opened(inspector, where, "agent")
    state = session["state"]
    assert state["next"]["action"] in ("push left", "push right")
    assert sum(bar["probability"] for bar in state["next"]["bars"]) == pytest.approx(1, abs=1e-5)
    total = 0.0
    while state["ending"] is None:
        chosen = state["next"]["action"]
        state = post(inspector, session, "step", keys=[])
        assert state["action"] == chosen
        total += state["reward"]
    assert state["return"] == pytest.approx(total, abs=1e-5)
    assert state["next"] is None
    with pytest.raises(HttpError, match="is over"):
        post(inspector, session, "step")


def test_dream_beside_reality(inspector):
    session = opened(inspector, "beside", likeliest=True)
    assert session["image"] is False
    state = session["state"]
    assert (state["error"], state["apart"], state["difference"]) == (None, None, None)
    np.testing.assert_array_equal(pixels(state["frame"]), pixels(state["dream"]))
    for _ in range(3):
        state = post(inspector, session, "step", keys=["left"])
    assert (state["return"], state["step"]) == (3, 3)
    assert state["error"] > 0
    assert state["worst"]["name"] in ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    assert (state["apart"] is None) == (state["error"] <= state["distance"] / 2)


def test_a_dream_of_pictures_has_a_difference(dreamers):
    inspector = Inspector(dreamers, [PLUGIN])
    session = opened(inspector, "beside", "agent", run="pictures")
    assert session["image"] is True
    state = post(inspector, session, "step")
    real, dreamt, difference = (pixels(state[kind]) for kind in ("frame", "dream", "difference"))
    assert real.shape == dreamt.shape == (16, 24, 3)
    np.testing.assert_array_equal(difference, heat(real, dreamt))
    assert 0 < state["error"] < 1
    sessions_of(inspector).close(session["id"])


def test_heat_lights_up_colour_by_colour():
    dark, light = np.zeros((1, 3, 3), np.uint8), np.array([[[0, 0, 0], [0, 85, 0], [255, 0, 0]]], np.uint8)
    assert heat(dark, light)[0].tolist() == [[0, 0, 0], [255, 0, 0], [255, 255, 255]]


def test_saved_episodes_are_walked_through(inspector):
    session = opened(inspector, "saved")
    assert session["counts"]["test"] == 1
    assert session["episodes"][0]["split"] == "test"
    train = next(entry for entry in session["episodes"] if entry["split"] == "train")
    state = post(inspector, session, "go", episode=train["index"])
    assert (state["length"], state["step"]) == (train["length"], 0)
    state = post(inspector, session, "go", step=2)
    assert (state["step"], state["return"]) == (2, 2)
    assert post(inspector, session, "step")["step"] == 3
    for wrong in ({"episode": 10_000}, {"step": train["length"] + 1}, {"step": "2"}):
        with pytest.raises(HttpError, match="whole number"):
            post(inspector, session, "go", **wrong)
    with pytest.raises(HttpError, match="what was saved alone"):
        post(inspector, opened(inspector, "real"), "go", step=1)


def test_games_have_limits(inspector, monkeypatch):
    monkeypatch.setattr(play_sessions, "MOST_SESSIONS", 2)
    sessions = sessions_of(inspector)
    first, second, third = (opened(inspector, "real") for _ in range(3))
    assert len(sessions) == 2
    with pytest.raises(HttpError, match="no longer open") as gone:
        post(inspector, first, "step", keys=["left"])
    assert gone.value.status == 404
    monkeypatch.setattr(play_sessions, "MOST_STEPS", 1)
    post(inspector, second, "step", keys=["left"])
    with pytest.raises(HttpError, match="at most 1 steps"):
        post(inspector, second, "step", keys=["left"])
    import time

    sessions.close_idle(time.monotonic() + play_sessions.IDLE_SECONDS + 1)
    assert len(sessions) == 0
    post(inspector, third, "close")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"where": "moon"}, "where is one of"),
        ({"by": "me"}, "by is one of"),
        ({"seed": -1}, "seed is a whole number"),
        ({"likeliest": 1}, "likeliest is true or false"),
        ({"plugin": "os"}, "nothing else"),
        ({"run": "nobody"}, "no run"),
    ],
)
def test_a_wish_is_typed_and_bounded(inspector, wish, words):
    with pytest.raises(HttpError, match=words):
        opened(inspector, **{"where": "real", **wish})


def test_keys_are_bounded_and_a_world_model_is_asked_for_in_words(inspector, trained):
    session = opened(inspector, "real")
    for keys in (["x" * 17], ["a"] * 17, "left", [1]):
        with pytest.raises(HttpError, match="keys are at most"):
            post(inspector, session, "step", keys=keys)
    with pytest.raises(gymlab.errors.GymlabError, match="ppo has no world model"):
        opened(Inspector(trained), "dream", run="cartpole-s1")
