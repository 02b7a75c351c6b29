"""`gymlab play` without a window: tables, videos, and what it says when it cannot."""

import re
import shutil

import pytest

import gymlab
from gymlab.cli.play_panel import scaled, scaled_size
from gymlab.metrics.video import frame_count, video_size


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def test_a_table_of_episodes(cli, trained):
    shown = cli("play", "tiny", "--headless", "--episodes", "3", "--runs-dir", trained)
    assert shown.code == 0, shown.err
    assert shown.out.count("terminated") == 3
    assert re.search(r"return [\d.]+ \(range [\d.]+ to [\d.]+\)  mean and range, n=3", shown.out)


def test_the_episodes_are_those_of_the_agent_on_that_seed(cli, trained):
    played = cli(
        "play", "tiny/@last", "--headless", "--episodes", "3", "--seed", "4", "--runs-dir", trained, "--json"
    ).json()
    agent = gymlab.load("tiny/@last", runs_dir=trained)
    from gymlab.engine.trace import play_episodes

    returns = {}
    for step in play_episodes(agent, seed=4, deterministic=True, episodes=3, render=False):
        returns[step.episode] = returns.get(step.episode, 0.0) + step.reward
    assert [episode["return"] for episode in played["episodes"]] == list(returns.values())
    assert played["mean"] == pytest.approx(sum(returns.values()) / 3)


def test_the_best_checkpoint_unless_another_is_named(cli, trained, tmp_path):
    runs = tmp_path / "copied"
    shutil.copytree(trained, runs, symlinks=True)
    run = runs / "tiny"
    best, first = (run / "checkpoints" / "best.ckpt"), sorted((run / "checkpoints").glob("epoch=*.ckpt"))[0]
    best.unlink()
    best.symlink_to(first.name)
    arguments = ["--headless", "--episodes", "1", "--json"]
    assert cli("play", run, *arguments).json()["checkpoint"].endswith(first.name)
    last = (run / "checkpoints" / "last.ckpt").resolve().name
    assert cli("play", f"{run}/@last", *arguments).json()["checkpoint"].endswith(last)
    best.unlink()
    assert cli("play", run, *arguments).json()["checkpoint"].endswith(last)


def test_a_video_in_the_runs_own_folder(cli, trained, tmp_path):
    runs = tmp_path / "copied"
    shutil.copytree(trained, runs, symlinks=True)
    shown = cli("play", "tiny", "--save", "--runs-dir", runs)
    assert shown.code == 0, shown.err
    (video,) = (runs / "tiny" / "videos").glob("play-epoch=*-s0.mp4")
    assert f"video {video}" in shown.out
    length = cli("play", "tiny", "--headless", "--episodes", "1", "--runs-dir", runs, "--json").json()["episodes"][0][
        "length"
    ]
    assert frame_count(video) == length + 1
    assert video_size(video) == (600, 400)


def test_chance_plays_any_environment(cli, tmp_path):
    shown = cli(
        "play", "FrozenLake-v1", "--mode", "random", "--headless", "--episodes", "4", "--save", tmp_path, "--json"
    )
    assert shown.code == 0, shown.err
    result = shown.json()
    assert result["n"] == 4
    assert result["deterministic"] is None
    assert result["video"] == str(tmp_path / "play-FrozenLake-v1-random-s0.mp4")
    steps = sum(episode["length"] for episode in result["episodes"])
    assert frame_count(result["video"]) == steps + 4
    again = cli("play", "FrozenLake-v1", "--mode", "random", "--headless", "--episodes", "4", "--json").json()
    assert again["episodes"] == result["episodes"]


def test_an_environment_of_a_module_of_ones_own(cli, tmp_path):
    (tmp_path / "my_worlds.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Own-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=5)\n"
    )
    played = cli("play", "my_worlds:Own-v0", "--mode", "random", "--headless", "--episodes", "1", "--json")
    assert played.code == 0, played.err
    assert played.json()["episodes"] == [{"return": 5.0, "length": 5, "ending": "truncated", "success": None}]


def test_the_agent_in_its_dream(cli, dreaming_runs, tmp_path):
    arguments = ["--headless", "--episodes", "2", "--runs-dir", dreaming_runs, "--json"]
    dreamt = cli("play", "dreamer", "-a", *arguments)
    assert dreamt.code == 0, dreamt.err
    result = dreamt.json()
    assert (result["mode"], result["n"]) == ("agent-in-world-model", 2)
    assert cli("play", "dreamer", "--agent-in-world-model", *arguments).json()["episodes"] == result["episodes"]
    assert [e["return"] for e in cli("play", "dreamer", *arguments).json()["episodes"]] != [
        e["return"] for e in result["episodes"]
    ]
    filmed = cli("play", "dreamer", "-a", "-s", tmp_path, "--likeliest", "--runs-dir", dreaming_runs, "--json").json()
    assert filmed["video"].startswith(str(tmp_path / "play-agent-in-world-model-epoch="))
    assert frame_count(filmed["video"]) == filmed["episodes"][0]["length"] + 1


def test_saved_episodes_are_listed_and_filmed(cli, dreaming_runs, tmp_path):
    shown = cli("play", "dreamer", "-e", "--headless", "--runs-dir", dreaming_runs)
    assert shown.code == 0, shown.err
    assert "1 test and" in shown.out
    listed = cli("play", "dreamer", "-e", "--headless", "--runs-dir", dreaming_runs, "--json").json()
    assert listed["episodes"][0] == {
        "split": "test",
        "source": "video",
        "name": "final",
        "return": None,
        "length": None,
        "ending": "",
        "success": None,
    }
    assert listed["train"] == listed["n"] - 1 > 1
    film = tmp_path / "saved.mp4"
    arguments = ["-e", "-s", film, "--episodes", "2", "--runs-dir", dreaming_runs]
    assert cli("play", "dreamer", *arguments).code == 0
    tested = frame_count(dreaming_runs / "dreamer" / "videos" / "final.mp4")
    assert frame_count(film) == tested + listed["episodes"][1]["length"] + 1


def test_each_step_in_a_line(cli, trained):
    shown = cli("play", "tiny", "--headless", "--step-by-step", "--episodes", "1", "--runs-dir", trained)
    lines = shown.out.splitlines()
    assert lines[0].startswith("episode 1, step 0: begins; then push ")
    assert lines[1].startswith("episode 1, step 1: reward 1, return 1; then push ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny"], ["no display", "--headless", "--save"]),
        (["tiny", "--mode", "user"], ["no display"]),
        (["tiny", "--mode", "user", "--headless"], ["needs a window"]),
        (["CartPole-v1", "--headless"], ["No run 'CartPole-v1'", "--mode user"]),
        (["Cartpool-v1", "--mode", "random", "--headless"], ["CartPole-v1"]),
        (["--save", "tiny"], ["gymlab play tiny --save"]),
        (["tiny", "--fps", "0", "--headless"], ["above 0"]),
        (["tiny", "--seed", "-1", "--headless"], ["a seed is 0 or more"]),
        (["tiny", "-a", "--headless"], ["ppo has no world model", "dreamer", "world_models"]),
        (["tiny", "-w", "--headless"], ["--play-in-world-model needs a window"]),
        (["tiny", "-a", "-e"], ["not allowed with"]),
    ],
)
def test_what_cannot_be_played(cli, trained, arguments, words):
    shown = cli("play", *arguments, "--runs-dir", trained)
    assert shown.code == 2
    for word in words:
        assert word in shown.err


def test_a_display_that_does_not_answer(cli, trained, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":9876")
    shown = cli("play", "tiny", "--runs-dir", trained)
    assert shown.code == 2
    assert "DISPLAY=:9876 cannot be reached" in shown.err


@pytest.mark.parametrize(
    ("size", "shown"),
    [((160, 210), (480, 630)), ((600, 400), (600, 400)), ((64, 64), (704, 704)), ((1920, 1080), (960, 540))],
)
def test_pixel_games_are_shown_large_and_large_ones_small(size, shown):
    assert scaled_size(*size) == shown


def test_enlarged_pixels_stay_sharp():
    import numpy as np

    frame = np.zeros((90, 90, 3), np.uint8)
    frame[:, 1::2] = 255
    picture = scaled(frame)
    assert {tuple(picture.get_at((x, 5)))[:3] for x in range(picture.get_width())} == {(0, 0, 0), (255, 255, 255)}
