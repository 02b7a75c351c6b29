"""One emulator a process: what is trained, evaluated and drawn lives apart, and the parent holds none."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.engine.setup import evaluation_environment
from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of
from gymlab.errors import ConfigError, EnvironmentFailure

retro = pytest.importorskip("stable_retro")
AIRSTRIKER = "Retro/Airstriker-Genesis-v0"
PIXELS = {"obs_type": "rgb", "frame_skip": 4, "frame_stack": 4, "grayscale_obs": True, "resize_obs": (84, 84)}
MOVES = {"actions": [[], ["LEFT"], ["RIGHT", "B"]]}


def test_ids_are_the_games_whose_rom_is_here():
    family = family_of(AIRSTRIKER)
    assert list(family.ids()) == [AIRSTRIKER]
    assert family.resolve("Retro/Airstriker-Genesis") == AIRSTRIKER


def test_an_unknown_game_names_the_nearest(config):
    with pytest.raises(EnvironmentFailure, match="'Airstriker-Genesis-v0'"):
        make_env(config("Retro/Airstryker-Genesis-v0"))


def test_a_missing_rom_names_the_command(config):
    with pytest.raises(EnvironmentFailure, match=r"python -m stable_retro\.import <folder>"):
        make_vector(config("Retro/SuperMarioBros-Nes-v0"), 2, SeedTree(0))


def test_missing_package_gives_the_pip_line():
    code = (
        "import sys; sys.modules['stable_retro'] = None\n"
        "from gymlab.config.schema import Config\n"
        "from gymlab.envs import make_env\n"
        "from gymlab.errors import EnvironmentFailure\n"
        "try:\n    make_env(Config(env_id='Retro/Airstriker-Genesis-v0', algo_id='ppo'))\n"
        "except EnvironmentFailure as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'gymlab[retro]'" in done.stdout


@pytest.mark.parametrize(
    ("actions", "space"),
    [
        ("multi_binary", gym.spaces.MultiBinary(12)),
        ("all", gym.spaces.MultiBinary(12)),
        ("discrete", gym.spaces.Discrete(3 * 3 * 14)),
        ("multi_discrete", gym.spaces.MultiDiscrete([3, 3, 14])),
        (MOVES["actions"], gym.spaces.Discrete(3)),
    ],
)
def test_actions(config, actions, space):
    env = make_env(config(AIRSTRIKER, env_kwargs={"actions": actions}))
    try:
        assert env.action_space == space
        env.reset(seed=0)
        observation, *_, info = env.step(env.action_space.sample())
        assert observation.shape == (3, 224, 320)
        assert info["lives"] == 3
    finally:
        env.close()


@pytest.mark.parametrize(
    ("env_kwargs", "message"),
    [
        ({"actions": "discret"}, "Did you mean 'discrete'"),
        ({"actions": [["JUMP"]]}, "'JUMP'.*Known: B, A"),
        ({"level": 1}, "unknown argument 'level'"),
        ({"state": "Level99"}, "Level99"),
    ],
)
def test_wrong_arguments_are_named(config, env_kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(config(AIRSTRIKER, env_kwargs=env_kwargs))


def test_named_buttons_move_the_ship(config):
    env = make_env(config(AIRSTRIKER, env_kwargs=MOVES, frame_skip=20))

    def seen(action):
        env.reset(seed=0)
        return env.step(action)[0]

    try:
        still = seen(0)
        assert (seen(1) != still).any()
        np.testing.assert_array_equal(seen(0), still)
    finally:
        env.close()


def test_processes_beside_each_other_and_an_exact_resume(config):
    given = config(AIRSTRIKER, env_kwargs=MOVES, **PIXELS)
    actions = np.random.default_rng(0).integers(0, 3, (30, 2))
    with make_vector(given, 2, SeedTree(1)) as training:
        assert training.backend == "async"
        training.reset()
        for row in actions[:15]:
            training.step(row)
        saved = training.get_state()
        # While two emulators run, one is made for evaluation and one for a video, each in its own process.
        with evaluation_environment(given, SeedTree(1), "val", 5, backend="sync") as evaluation:
            assert (evaluation.backend, evaluation.num_envs) == ("async", 1)
            assert evaluation.reset().shape == (1, 4, 84, 84)
        with evaluation_environment(given, SeedTree(1), "video", 1, render_mode="rgb_array") as video:
            video.reset()
            assert video.render().shape == (224, 320, 3)
            assert video.render_fps == 15.0
        expected = [training.step(row) for row in actions[15:]][-1].observation.copy()
    with make_vector(given, 2, SeedTree(1)) as resumed:
        resumed.set_state(saved)
        reached = [resumed.step(row) for row in actions[15:]][-1].observation
        np.testing.assert_array_equal(reached, expected)


def test_several_in_one_process_are_refused(config):
    with pytest.raises(ConfigError, match="a process can hold one"):
        make_vector(config(AIRSTRIKER), 2, SeedTree(0), backend="sync")
