"""Doom scenarios: files, actions, seeds, ends of episodes, processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import psutil
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of
from gymlab.envs.families.vizdoom import SCENARIOS, load_game, snake_case
from gymlab.errors import ConfigError, EnvironmentFailure

vizdoom = pytest.importorskip("vizdoom")
SMALL = {"screen_resolution": "160x120"}
PIXELS = {"frame_skip": 4, "frame_stack": 4, "grayscale_obs": True, "resize_obs": (84, 84)}


@pytest.fixture
def doom(config):
    opened = []

    def make(env_id="VizDoom-Basic-v0", env_kwargs=None, *, seeds=None, render_mode=None, **fields):
        given = config(env_id, env_kwargs={**SMALL, **(env_kwargs or {})}, **fields)
        opened.append(make_env(given, seeds=seeds, render_mode=render_mode))
        return opened[-1]

    yield make
    for env in opened:
        env.close()


@pytest.mark.parametrize(
    ("name", "stem"),
    [("DefendTheCenter", "defend_the_center"), ("E1M1", "e1m1"), ("Basic", "basic"), ("MyWayHome", "my_way_home")],
)
def test_scenario_is_the_snake_case_of_the_id(name, stem):
    assert snake_case(name) == stem


@pytest.mark.parametrize(
    ("scenario", "limit", "actions"),
    [
        *[("Basic", 300, 4), ("DeadlyCorridor", 2100, 8), ("Deathmatch", 4200, 18), ("DefendTheCenter", 2100, 4)],
        *[("DefendTheLine", None, 4), ("E1M1", 126_000, 20), ("HealthGathering", 2100, 4), ("MyWayHome", 2100, 6)],
        *[("PredictPosition", 300, 4), ("TakeCover", None, 3)],
    ],
)
def test_each_scenario_has_its_limit_and_one_action_a_button(scenario, limit, actions):
    family, env_id = family_of(f"VizDoom-{scenario}-v0"), f"VizDoom-{scenario}-v0"
    kwargs = family.env_kwargs(family.resolve(env_id), {})
    assert family.spec(env_id, kwargs).max_episode_steps == limit
    assert family.spec(env_id, kwargs).reward_threshold == SCENARIOS[scenario].threshold
    env = family.make(env_id, kwargs, None)
    assert env.action_space == gym.spaces.Discrete(actions)
    assert env.observation_space == gym.spaces.Box(0, 255, (240, 320, 3), np.uint8)
    assert env_id in family.ids()


def test_the_buttons_of_each_kind_of_action(doom):
    one = doom().unwrapped.buttons
    assert [one.pressed(action) for action in range(4)] == [[], ["MOVE_LEFT"], ["MOVE_RIGHT"], ["ATTACK"]]
    pairs = doom(env_kwargs={"actions": "combinations", "max_buttons": 2}).unwrapped.buttons
    assert pairs.space.n == 1 + 3 + 3
    assert pairs.pressed(5) == ["MOVE_LEFT", "ATTACK"]
    free = doom(env_kwargs={"actions": "multi_binary"})
    assert free.action_space == gym.spaces.MultiBinary(3)
    assert free.unwrapped.buttons.pressed([1, 0, 1]) == ["MOVE_LEFT", "ATTACK"]
    named = doom(env_kwargs={"actions": [["ATTACK"], ["MOVE_RIGHT", "ATTACK"]]}).unwrapped.buttons
    assert [named.pressed(action) for action in range(2)] == [["ATTACK"], ["MOVE_RIGHT", "ATTACK"]]


@pytest.mark.parametrize(
    ("env_kwargs", "message"),
    [
        ({"actions": [["FIRE"]]}, "'FIRE'.*Known: MOVE_LEFT, MOVE_RIGHT, ATTACK"),
        ({"actions": "discret"}, "expected discrete, combinations"),
        ({"actions": "combinations", "max_buttons": 4}, "1 to 3"),
        ({"action": "discrete"}, "Did you mean 'actions'"),
        ({"screen_resolution": "160x121"}, "160x120"),
        ({"settings": {"living_rewrad": 1}}, "living_reward"),
        ({"settings": {"game_args": "+logfile x"}}, "game_args"),
        ({"settings": {"doom_map": "map01;logfile x"}}, "doom_map is 'map01;logfile x'"),
        ({"settings": 7}, "settings is 7; expected names and values"),
        ({"settings": [1]}, r"settings is \[1\]; expected names"),
        ({"settings": "x"}, "settings is 'x'; expected names"),
        ({"settings": 0}, "settings is 0; expected names"),
        ({"settings": {5: 1}}, "settings has 5"),
        ({"settings": {"doom_skill": "abc"}}, r"settings\.doom_skill is 'abc'; expected a whole number"),
        ({"settings": {"doom_skill": 10**30}}, r"settings\.doom_skill is 1000.*; expected a whole number"),
        ({"settings": {"doom_skill": True}}, r"settings\.doom_skill is True; expected a whole number"),
        ({"settings": {"doom_map": 5}}, r"settings\.doom_map is 5; expected a name"),
        ({"settings": {"render_hud": "no"}}, r"settings\.render_hud is 'no'; expected true or false"),
        ({"settings": {"living_reward": None}}, r"settings\.living_reward is None; expected a number"),
        ({"settings": {"living_reward": float("nan")}}, r"settings\.living_reward is nan; expected a number"),
        ({"settings": {"living_reward": 10**400}}, r"settings\.living_reward is 1000.*; expected a number"),
        ({"config_path": "nowhere.cfg"}, "there is no file nowhere.cfg"),
    ],
)
def test_wrong_arguments_are_named(doom, env_kwargs, message):
    with pytest.raises(ConfigError, match=message):
        doom(env_kwargs=env_kwargs)


def test_an_unknown_scenario_names_the_nearest(config):
    with pytest.raises(EnvironmentFailure, match="VizDoom-DefendTheCenter-v0"):
        make_env(config("VizDoom-DefendTheCentre-v0"))


def test_missing_package_gives_the_pip_line():
    code = (
        "import sys; sys.modules['vizdoom'] = None\n"
        "from gymlab.config.schema import Config\n"
        "from gymlab.envs import make_env\n"
        "from gymlab.errors import EnvironmentFailure\n"
        "try:\n    make_env(Config(env_id='VizDoom-Basic-v0', algo_id='ppo'))\n"
        "except EnvironmentFailure as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'gymlab[vizdoom]'" in done.stdout


def episode(env, steps=25):
    """Observations and rewards of shooting and stepping about."""
    screens, rewards = [env.reset()[0]], []
    for action in np.random.default_rng(0).integers(0, 4, steps):
        observation, reward, terminated, truncated, _ = env.step(action)
        screens.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.stack(screens), rewards


def test_an_episode_follows_from_its_seed_whatever_was_before(doom):
    one, other = doom(seeds=SeedTree(3)), doom(seeds=SeedTree(3))
    first, second = episode(one), episode(one)
    assert first[0].shape != second[0].shape or (first[0] != second[0]).any()
    other.number_from(SeedTree(3), episode_index=0)
    again = episode(other)
    np.testing.assert_array_equal(again[0], second[0])
    assert again[1] == second[1]


def test_a_cut_off_episode_shows_its_last_screen_and_no_termination(doom):
    env = doom(max_episode_steps=6)
    env.reset(seed=0)
    for _ in range(6):
        screen, reward, terminated, truncated, info = env.step(0)
        assert (reward, terminated, info["is_success"]) == (-1.0, False, False)
    assert truncated
    assert screen.shape == (3, 120, 160)
    assert screen.max() > 0
    assert (info["health"], info["ammo"], info["ammo2"]) == (100.0, 50.0, 50.0)


def test_skipped_tics_are_played_by_the_game_and_counted_as_steps(doom):
    singly, at_once = doom(max_episode_steps=10), doom(max_episode_steps=10, frame_skip=4)
    singly.reset(seed=5)
    at_once.reset(seed=5)
    lengths = (4, 4, 2)  # The limit cuts the last one.
    for length in lengths:
        played = [singly.step(1) for _ in range(length)]
        observation, reward, terminated, truncated, _ = at_once.step(1)
        np.testing.assert_array_equal(observation, played[-1][0])
        assert (reward, terminated, truncated) == (-length, *played[-1][2:4])
    assert truncated
    assert at_once.env_return == singly.env_return == -10


def test_killing_the_monster_is_a_success(doom):
    env = doom(env_kwargs={"actions": [["ATTACK"], ["MOVE_LEFT"], ["MOVE_RIGHT"]]}, frame_skip=4)
    for seed in range(30):  # The monster stands straight ahead in one of ten or so.
        env.reset(seed=seed)
        _, reward, terminated, _, info = env.step(0)
        for _ in range(3):
            if not terminated:
                _, reward, terminated, _, info = env.step(0)
        if terminated:
            break
    assert terminated
    assert info["is_success"]
    assert reward > 90
    assert info["kills"] == 1.0


def test_settings_change_the_rewards(doom):
    env = doom(env_kwargs={"settings": {"living_reward": -3}})
    env.reset(seed=0)
    assert env.step(0)[1] == -3.0


def test_variables_beside_the_screen(doom):
    env = doom("VizDoom-DefendTheCenter-v0", {"game_variables": True})
    assert env.raw_observation_space["game_variables"].shape == (2,)
    flat, _ = env.reset(seed=0)
    assert flat[:2].tolist() == [26.0, 100.0]
    assert flat.shape == (2 + 120 * 160 * 3,)


def test_drawing_is_the_screen_at_the_speed_of_doom(doom):
    env = doom(render_mode="rgb_array", frame_skip=5)
    env.reset(seed=0)
    assert env.render().shape == (120, 160, 3)
    assert env.metadata["render_fps"] == 7.0


def test_own_scenarios_by_folder_and_by_path(doom, tmp_path, monkeypatch):
    text = (Path(vizdoom.scenarios_path) / "basic.cfg").read_text()
    (tmp_path / "my_basic.cfg").write_text(text.replace("episode_timeout = 300", "episode_timeout = 7"))
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match=r"basic.wad.*VIZDOOM_SCENARIOS_DIR"):
        doom("VizDoom-MyBasic-v0").reset(seed=0)
    shutil.copy(Path(vizdoom.scenarios_path) / "basic.wad", tmp_path)
    env = doom("VizDoom-MyBasic-v0")
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(7)] == [False] * 6 + [True]
    monkeypatch.delenv("VIZDOOM_SCENARIOS_DIR")
    given = family_of("VizDoom-Basic-v0").env_kwargs(
        "VizDoom-Basic-v0", {"config_path": str(tmp_path / "my_basic.cfg")}
    )
    assert family_of("VizDoom-Basic-v0").spec("VizDoom-Basic-v0", given).max_episode_steps == 7


@pytest.fixture
def scenario(tmp_path):
    """A scenario in a folder of its own, with lines of one's own at the end of its file."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    shutil.copy(Path(vizdoom.scenarios_path) / "basic.wad", folder)

    def write(lines):
        text = (Path(vizdoom.scenarios_path) / "basic.cfg").read_text()
        (folder / "basic.cfg").write_text(f"{text}\n{lines}\n")
        return str(folder / "basic.cfg")

    return write


@pytest.mark.parametrize("line", ["vizdoom_path = evil", "VizDoomPath=evil", "VIZDOOM_PATH\t= ../scenario/./evil"])
def test_the_program_is_the_one_of_the_package_whatever_a_scenario_says(scenario, line):
    game = load_game(Path(scenario(line)), {})
    assert game.get_vizdoom_path() == vizdoom.exe_path
    assert game.get_doom_config_path() == os.devnull


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("game_args = +logfile written", r"game_args is '\+logfile written'"),
        ("gameargs += -file other.wad", "game_args is '-file other.wad'"),
        ("game_args += +sv_noautoaim 1\nGame_Args += +exec commands", "game_args"),
        ("game_args = +sv_noautoaim 1;logfile written", "game_args"),
        ("game_args = +exec 7", "game_args is '.exec 7'.* exec is none that is known"),
        ("game_args = +logfile 7 +screenshot 1", "logfile, screenshot is none that is known"),
        ("game_args = +sv_noautoaim 1 +sv_noautoaimed 1 +save 2", r"\. save is none that is known"),
        ("doom_map = map01;logfile written", "doom_map is 'map01;logfile written'"),
        ("doom_game_path = ../other/doom.wad", r"doom_game_path is .*other/doom.wad.*VIZDOOM_SCENARIOS_DIR"),
        ("DoomScenarioPath = ../other/x.wad", "doom_scenario_path is .*other/x.wad"),
        ("doom_scenario_path = linked.wad", "doom_scenario_path is .*linked.wad"),
        ("doom_scenario_path = linked", "doom_scenario_path is .*linked"),
    ],
)
def test_a_scenario_names_no_file_elsewhere_and_gives_the_console_no_command(scenario, tmp_path, lines, message):
    path = scenario(lines)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.wad").write_bytes(b"")
    (tmp_path / "scenario" / "linked.wad").symlink_to(tmp_path / "other" / "x.wad")
    with pytest.raises(ConfigError, match=message):
        load_game(Path(path), {})


def test_a_scenario_may_set_variables_of_the_game_and_lie_in_the_folder_of_the_user(scenario, tmp_path, monkeypatch):
    (tmp_path / "wads").mkdir()
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path / "wads"))
    path = scenario(
        "game_args = +SV_noautoaim 1 +viz_respawn_delay 10\ngame_args += +timelimit -10.5\n"
        "doom_scenario_path = ../wads/basic.wad"
    )
    told = load_game(Path(path), {}).get_game_args().split()
    assert told == ["+SV_noautoaim", "1", "+viz_respawn_delay", "10", "+timelimit", "-10.5"]


def test_every_scenario_of_the_package_gives_arguments_that_are_known():
    for path in Path(vizdoom.scenarios_path).glob("*.cfg"):
        load_game(path, {})


def test_nothing_is_left_in_the_working_folder(doom, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = doom()
    env.reset(seed=0)
    env.close()
    assert os.listdir(tmp_path) == []


def test_in_processes_and_resumed_by_replay(config):
    fields = {"vectorization_mode": "async", "env_kwargs": SMALL, "obs_type": "rgb", **PIXELS}
    actions = np.random.default_rng(1).integers(0, 4, (40, 2))
    with make_vector(config("VizDoom-Basic-v0", **fields), 2, SeedTree(7)) as vector:
        assert (vector.backend, vector.observation.shape) == ("async", (2, 4, 84, 84))
        vector.reset()
        for row in actions[:20]:
            vector.step(row)
        saved = vector.get_state()
        expected = [vector.step(row) for row in actions[20:]][-1].observation.copy()
    with make_vector(config("VizDoom-Basic-v0", **fields), 2, SeedTree(7)) as vector:
        vector.set_state(saved)
        reached = [vector.step(row) for row in actions[20:]][-1].observation
        np.testing.assert_array_equal(reached, expected)


def test_the_game_of_a_killed_worker_ends_with_it(config):
    with make_vector(config("VizDoom-Basic-v0", env_kwargs=SMALL), 1, SeedTree(7), backend="async") as vector:
        vector.reset()
        vector.restarts.finished = True
        worker = psutil.Process(vector._workers[0].process.pid)
        (game,) = worker.children()
        worker.kill()
        step = vector.step(np.zeros(1, dtype=np.int64))
        assert step.truncated[0]
        game.wait(10)
