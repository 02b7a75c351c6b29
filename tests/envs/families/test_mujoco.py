"""Gymnasium's robots: the family that makes them, the missing package, a picture."""

import subprocess
import sys

import numpy as np
import pytest

from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of


@pytest.mark.parametrize(
    "robot", ["HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "InvertedPendulum", "Pusher"]
)
def test_robots_are_of_the_family(robot):
    assert family_of(f"{robot}-v5").name == "mujoco"


def test_missing_package_gives_the_pip_line():
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "from gymlab.config.schema import Config\n"
        "from gymlab.envs import make_env\n"
        "from gymlab.errors import GymlabError\n"
        "for env_id in ('HalfCheetah-v5', 'dmc/cartpole-swingup'):\n"
        "    try:\n        make_env(Config(env_id=env_id, algo_id='ppo'))\n"
        "    except GymlabError as error:\n        print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, second = told.splitlines()
    assert "HalfCheetah-v5" in first
    assert first.endswith("Run: pip install 'gymlab[mujoco]'")
    assert "dmc/cartpole-swingup" in second
    assert second.endswith("Run: pip install 'gymlab[dmc]'")


def test_an_open_episode_is_resumed(config, seeds):
    pytest.importorskip("mujoco")
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 3)).astype(np.float32)
    with make_vector(config("Hopper-v5"), 2, seeds, backend="sync") as first:
        first.reset()
        for row in actions[:20]:
            first.step(row)
        state = first.get_state()
        expected = [first.step(row).observation.copy() for row in actions[20:]]
    with make_vector(config("Hopper-v5"), 2, seeds, backend="sync") as second:
        second.set_state(state)
        for row, observation in zip(actions[20:], expected, strict=True):
            np.testing.assert_array_equal(second.step(row).observation, observation)


def test_a_picture(config):
    pytest.importorskip("mujoco")
    from gymlab.envs.gl import OFF, prepare_gl

    if prepare_gl(drawing=False) == OFF:
        pytest.skip("nothing draws here")
    env = make_env(config("InvertedPendulum-v5", env_kwargs={"width": 64, "height": 48}), render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (48, 64, 3)
    assert picture.std() > 5
    env.close()
