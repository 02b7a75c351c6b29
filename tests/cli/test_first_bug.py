"""The first minutes with one's own environment: each bug in it is one screen that begins with the author's line and names the fix."""

import sys

import gymnasium as gym
import pytest

MODULE = """
import gymnasium as gym
import numpy as np


class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)
    bug = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return {reset}

    def step(self, action):
        self.time += 1
        return {step}


class Vector(gym.vector.VectorEnv):
    metadata = {{"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}}

    def __init__(self, num_envs, **kwargs):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = World.observation_space, World.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 3), np.float32), {{}}

    def step(self, actions):
        return self.hapless


gym.register("FirstBug-v0", entry_point=World, vector_entry_point=Vector)
"""
LOOK = "np.zeros(3, np.float32)"
FINE = {"reset": f"{LOOK}, {{}}", "step": f"{LOOK}, 1.0, self.time > 5, False, {{}}"}
BUGS = {
    "a name": (
        {"step": "self.nothing"},
        "first_bug.py:18, in step: AttributeError: ",
        "env check first_bug:FirstBug-v0",
    ),
    "a name in reset": ({"reset": "self.nothing"}, "first_bug.py:14, in reset: AttributeError: ", "env check"),
    "numpy": ({"step": "np.zeros(3) + np.zeros(4)"}, "first_bug.py:18, in step: ValueError: ", "env check"),
    "four values": ({"step": f"{LOOK}, 1.0, False, {{}}"}, "first_bug.py:16, in step: ", "Split the old `done`"),
    "no info": ({"reset": LOOK}, "first_bug.py:11, in reset: ", "End reset with `return observation, {}`"),
    "an array as reward": (
        {"step": f"{LOOK}, np.ones(3), False, False, {{}}"},
        "first_bug.py:16, in step: ",
        "`float(reward.sum())`",
    ),
    "None as info": ({"step": f"{LOOK}, 1.0, False, False, None"}, "first_bug.py:16, in step: ", "Give `{}`"),
    "a wide observation": ({"reset": "np.zeros(4), {}"}, "first_bug.py:11, in reset: ", "its space (3,)"),
    "a nested observation": (
        {"step": "np.zeros((1, 3)), 1.0, False, False, {}"},
        "first_bug.py:16, in step: ",
        "shape (1, 3), its space (3,)",
    ),
}


@pytest.fixture
def world(cli, tmp_path):
    """Trains on a small environment with parts of its methods replaced."""

    def train(mode="sync", old_reset=False, **parts):
        text = MODULE.format(**FINE | parts)
        if old_reset:
            text = text.replace("self, *, seed=None, options=None):\n        super().reset(seed=seed)", "self):")
        (tmp_path / "first_bug.py").write_text(text)
        settings = [f"vectorization_mode={mode}", "max_env_steps=64", "n_envs=2", "n_steps=16", "env_workers=1"]
        return cli(
            "train", "first_bug:FirstBug-v0", "--algo", "ppo", "eval_freq_epochs=0", "double_buffer=false", *settings
        )

    yield train
    sys.modules.pop("first_bug", None)
    gym.registry.pop("FirstBug-v0", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def assert_one_screen(done, beginning, advice):
    assert done.code == 2
    error = done.err[done.err.index("error: ") :]
    assert error.startswith(f"error: {beginning}"), done.err
    assert advice in error
    assert "Traceback" not in done.out + done.err
    assert "is restarted" not in done.out + done.err
    assert len((done.out + done.err).splitlines()) <= 24


@pytest.mark.parametrize(
    ("bug", "mode"), [*((bug, "sync") for bug in BUGS), ("a name", "async"), ("four values", "async")]
)
def test_a_bug_is_told_on_one_screen_with_the_authors_line_first(world, bug, mode):
    parts, beginning, advice = BUGS[bug]
    assert_one_screen(world(mode, **parts), beginning, advice)


def test_a_reset_of_old_is_taught(world):
    assert_one_screen(
        world(old_reset=True), "first_bug.py:11, in reset: ", "`def reset(self, *, seed=None, options=None):`"
    )


def test_a_bug_in_a_vector_version_too(world):
    done = world("native")
    assert_one_screen(done, "first_bug.py:32, in step: AttributeError: ", "vectorization_mode: sync or async")


def test_an_environment_without_a_bug_trains(world):
    assert world().code == 0
