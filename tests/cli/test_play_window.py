"""`gymlab play` in a window, on an X server of its own, with real key events."""

import json

import pytest
from xwindows import Played, start_screen

from gymlab.metrics.video import frame_count


@pytest.fixture(scope="module")
def display():
    server, name = start_screen()
    yield name
    server.terminate()
    server.wait()


@pytest.fixture
def play(display, tmp_path):
    opened = []

    def start(*arguments):
        opened.append(Played(display, arguments, tmp_path))
        return opened[-1]

    yield start
    for played in opened:
        played.close()


def test_an_agent_is_watched_paused_stepped_and_left(play, trained, cli):
    window = play("tiny", "--runs-dir", trained, "--step-by-step", "--json")
    assert window.title.startswith("CartPole-v1 · tiny · epoch=")
    assert window.title.endswith("episode 1, step 0 · paused")
    window.key("n")
    window.wait(lambda: window.place == (1, 1))
    window.key("Right")
    window.wait(lambda: window.place == (1, 2))
    # The panel goes and comes: the window is as wide as CartPole's picture without it.
    wide = window.size
    window.key("o")
    window.wait(lambda: window.size == (600, 400))
    window.key("o")
    window.wait(lambda: window.size == wide)
    for key in ("h", "h", "plus", "minus"):
        window.key(key)
    window.key("space")
    window.wait(lambda: not window.title.endswith("paused"))
    window.wait(lambda: window.place > (1, 2))
    window.key("r")
    window.wait(lambda: window.place >= (2, 0))
    window.key("q")
    code, out, err = window.finish()
    assert code == 0, err
    result = json.loads(out)
    assert result["mode"] == "trained"
    assert result["episodes"][-1]["ending"] == "left"
    assert result["checkpoint"].endswith(".ckpt")


def test_so_many_episodes_and_the_window_closes(play, trained, cli):
    window = play("tiny", "--runs-dir", trained, "--episodes", "2", "--fps", "2000", "--json")
    code, out, err = window.finish()
    assert code == 0, err
    shown = json.loads(out)["episodes"]
    assert [episode["ending"] for episode in shown] == ["terminated", "terminated"]
    headless = cli("play", "tiny", "--runs-dir", trained, "--headless", "--episodes", "2", "--json").json()["episodes"]
    assert shown == headless


def test_a_person_crosses_the_lake(play, tmp_path):
    """FrozenLake waits for each key; without ice the arrows lead to the goal."""
    (tmp_path / "conf" / "environments").mkdir(parents=True)
    (tmp_path / "conf" / "environments" / "Firm.yaml").write_text(
        "env_id: FrozenLake-v1\nenv_kwargs: {is_slippery: false}\nq_learning: {max_env_steps: 100}\n"
    )
    window = play("Firm:q_learning", "--mode", "user", "--episodes", "1", "--save", "crossing.mp4", "--json")
    assert window.place == (1, 0)
    for step, key in enumerate(("Down", "Down", "Right", "Right", "Down", "Right"), 1):
        window.key(key)
        if step < 6:
            window.wait(lambda step=step: window.place == (1, step))
    code, out, err = window.finish()
    assert code == 0, err
    result = json.loads(out)
    assert result["episodes"] == [{"return": 1.0, "length": 6, "ending": "terminated", "success": None}]
    assert "left" in err
    assert frame_count(tmp_path / "crossing.mp4") == 7


def test_a_person_holds_a_key(play):
    """CartPole has no idle action: it stands until the first key, and a push to one side for good ends it soon."""
    window = play("CartPole-v1", "--mode", "user", "--episodes", "1", "--fps", "8", "--json")
    assert window.place == (1, 0)
    window.key_down("Right")
    window.wait(lambda: window.place[1] > 0)
    window.key_up("Right")
    code, out, err = window.finish()
    assert code == 0, err
    (episode,) = json.loads(out)["episodes"]
    assert episode["ending"] == "terminated"
    assert 8 <= episode["length"] <= 11


def test_a_person_walks_in_a_dream(play, dreaming_runs, tmp_path):
    arguments = ["-w", "--episodes", "1", "-s", "dreamt.mp4", "--fps", "8", "--no-header", "--json"]
    window = play("dreamer", *arguments, "--runs-dir", dreaming_runs)
    assert "in the world model" in window.title
    assert window.place == (1, 0)
    assert window.size == (600, 400)
    window.key_down("Right")
    window.wait(lambda: window.place[1] > 0)
    window.key_up("Right")
    code, out, err = window.finish()
    assert code == 0, err
    (episode,) = json.loads(out)["episodes"]
    assert episode["ending"] in ("terminated", "truncated")
    assert frame_count(tmp_path / "dreamt.mp4") == episode["length"] + 1


def test_saved_episodes_are_browsed(play, dreaming_runs):
    window = play("dreamer", "-e", "--step-by-step", "--runs-dir", dreaming_runs)
    assert "test 1 of 1: final" in window.title
    window.key("t")
    window.wait(lambda: "train 1 of" in window.title)
    window.key("n")
    window.wait(lambda: window.place == (2, 1))
    window.key("Left")
    window.wait(lambda: window.place == (2, 0))
    window.key("r")
    window.wait(lambda: "train 2 of" in window.title)
    window.key("e")
    window.wait(lambda: "train 1 of" in window.title)
    window.key("q")
    code, out, err = window.finish()
    assert code == 0, err
    assert "previous episode" in out


def test_the_window_is_closed_by_the_keyboard_in_user_mode(play):
    window = play("Taxi-v4", "--mode", "user")
    window.key("Escape")
    code, out, _ = window.finish()
    assert code == 0
    assert "pick up" in out
    assert "No episode was played." in out
