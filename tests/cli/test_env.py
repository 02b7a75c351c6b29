"""`gymlab env check`: the table, JSON, exit codes, environments of the user's own, and a fresh process."""

import sys
import textwrap

import pytest

MAZE = """
import gymnasium as gym
import numpy as np


class Thing:
    pass


class Maze(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, size=4, by_address=False, text=False, render_mode=None):
        self.observation_space = gym.spaces.Box(0, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = render_mode
        self.by_address, self.text = by_address, text

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.random(self.observation_space.shape).astype(np.float32)
        if self.by_address:
            order = [thing.number for thing in self.things()]
            self.state = np.array(order[: len(self.state)], np.float32) / 100
        return self.state, {}

    def things(self):
        made = [Thing() for _ in range(100)]
        for number, thing in enumerate(made):
            thing.number = number
        return {f"{thing.number}": thing for thing in set(made)}.values()

    def step(self, action):
        self.state = self.np_random.random(self.observation_space.shape).astype(np.float32)
        reward = "one" if self.text else float(self.state[0])
        return self.state, reward, bool(self.state[0] > 0.9), False, {}

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


gym.register("Maze-v0", entry_point=Maze, max_episode_steps=30)
"""


@pytest.fixture
def maze(tmp_path, monkeypatch):
    import gymnasium

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "check_maze.py").write_text(textwrap.dedent(MAZE))
    yield "check_maze:Maze-v0"
    gymnasium.registry.pop("Maze-v0", None)
    sys.modules.pop("check_maze", None)


def test_an_environment_of_the_users_own(cli, maze):
    shown = cli("env", "check", maze, "--steps", "100", "--env-kwargs", "size=3", "--json")
    assert shown.code == 0, shown.err
    found = shown.json()
    assert found["works"] is True
    states = {finding["check"]: finding["state"] for finding in found["findings"]}
    assert set(states.values()) == {"ok"}, found
    assert any("Box 3 float32" in finding["detail"] for finding in found["findings"])


def test_what_depends_on_addresses_differs_in_a_fresh_process(cli, maze):
    found = cli("env", "check", maze, "--steps", "20", "--env-kwargs", "by_address=true", "--json").json()
    findings = {finding["check"]: finding for finding in found["findings"]}
    assert "failed" in findings["seeding"]["state"] or findings["replay"]["state"] == "warning"


def test_a_failure_is_told_and_the_code_is_one(cli, maze):
    shown = cli("env", "check", maze, "--steps", "20", "--env-kwargs", "text=true")
    assert shown.code == 1
    assert "✗ api" in shown.out
    assert "'one', which is no number" in " ".join(shown.out.split())
    assert "1 to be fixed before training" in shown.out


def test_a_shipped_variant_with_its_settings(cli):
    shown = cli("env", "check", "CartPole-v1:ppo", "max_episode_steps=60", "--steps", "100")
    assert shown.code == 0, shown.out
    assert "time limit 60" in shown.out
    assert "It can be trained on." in shown.out


def test_what_cannot_be_checked(cli):
    assert "'CartPole-v1'" in cli("env", "check", "CartPoll-v1").err
    assert "'ppo'" in cli("env", "check", "CartPole-v1:pppo").err
    assert cli("env", "check", "max_episode_steps=3").code == 2
    for words in (["env"], ["env", "chek"]):
        shown = cli(*words)
        assert shown.code == 2
        assert "gymlab env check" in shown.err


def test_a_missing_package_is_its_pip_line(cli, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    shown = cli("env", "check", "LunarLander-v3")
    assert shown.code == 2
    assert "pip install 'gymlab[box2d]'" in shown.err
