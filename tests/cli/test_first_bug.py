"""The first minutes with one's own environment: each bug in it is one screen that begins with the author's line and names the fix."""

import json
import sys

import gymnasium as gym
import pytest

MODULE = """
import gymnasium as gym
import numpy as np


class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        {init}

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
FINE = {
    "init": "self.render_mode = render_mode",
    "reset": f"{LOOK}, {{}}",
    "step": f"{LOOK}, 1.0, self.time > 5, False, {{}}",
}
BUGS = {
    "a name": (
        {"step": "self.nothing"},
        "first_bug.py:20, in step: AttributeError: ",
        "env check first_bug:FirstBug-v0",
    ),
    "a name in reset": ({"reset": "self.nothing"}, "first_bug.py:16, in reset: AttributeError: ", "env check"),
    "numpy": ({"step": "np.zeros(3) + np.zeros(4)"}, "first_bug.py:20, in step: ValueError: ", "env check"),
    "four values": ({"step": f"{LOOK}, 1.0, False, {{}}"}, "first_bug.py:18, in step: ", "Split the old `done`"),
    "no values": (
        {"step": "None"},
        "first_bug.py:18, in step: ",
        "step returns nothing, not (observation, reward, terminated, truncated, info).\nEnd step with `return observation",
    ),
    "no info": ({"reset": LOOK}, "first_bug.py:13, in reset: ", "End reset with `return observation, {}`"),
    "an array as reward": (
        {"step": f"{LOOK}, np.ones(3), False, False, {{}}"},
        "first_bug.py:18, in step: ",
        "`float(reward.sum())`",
    ),
    "None as info": ({"step": f"{LOOK}, 1.0, False, False, None"}, "first_bug.py:18, in step: ", "Give `{}`"),
    "a wide observation": ({"reset": "np.zeros(4), {}"}, "first_bug.py:13, in reset: ", "its space (3,)"),
    "a nested observation": (
        {"step": "np.zeros((1, 3)), 1.0, False, False, {}"},
        "first_bug.py:18, in step: ",
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
        settings = [
            f"vectorization_mode={mode}",
            "video=true",
            "max_env_steps=64",
            "n_envs=2",
            "n_steps=16",
            *(["env_workers=1"] if mode == "async" else []),
        ]
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
        world(old_reset=True), "first_bug.py:13, in reset: ", "`def reset(self, *, seed=None, options=None):`"
    )


def test_a_bug_in_a_vector_version_too(world):
    done = world("native")
    assert_one_screen(done, "first_bug.py:34, in step: AttributeError: ", "vectorization_mode: sync or async")


@pytest.mark.parametrize("plugin", ["first_bug", "first_bug.py"])
def test_the_advised_check_of_a_plugins_environment_names_the_plugin_and_runs(world, cli, plugin):
    world(**BUGS["a name"][0])
    forget()
    done = cli("train", "FirstBug-v0", "--algo", "ppo", "vectorization_mode=sync", "--plugin", plugin)
    advised = f"gymlab env check FirstBug-v0 --plugin {plugin}"
    assert f"Test it without training: {advised}\n" in done.err
    forget()
    assert "✗" in cli(*advised.split()[1:]).out


def test_an_environment_without_a_bug_trains(world):
    assert world().code == 0


MODULES = {
    "a syntax error": ("def f(:", "first_bug.py:1: SyntaxError: "),
    "a missing name": ("from math import sqroot", "first_bug.py:1, in <module>: ImportError: "),
    "a missing package": ("import no_such_package", "first_bug.py:1, in <module>: ModuleNotFoundError: "),
    "an end": ("import sys; sys.exit(4)", "first_bug.py:1, in <module>: the environment tried to end the program"),
}


@pytest.mark.parametrize("bug", MODULES)
def test_a_module_that_cannot_be_imported_is_told_by_its_line(cli, tmp_path, bug):
    text, beginning = MODULES[bug]
    (tmp_path / "first_bug.py").write_text(text)
    done = cli("train", "first_bug:FirstBug-v0", "--algo", "ppo")
    assert_one_screen(done, beginning, "Plugin 'first_bug' ")
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def test_a_type_error_in_init_is_no_matter_of_env_kwargs(world):
    assert_one_screen(
        world(init="None + 1"), "first_bug.py:11, in __init__: TypeError: ", "env check first_bug:FirstBug-v0"
    )


def test_an_environment_that_does_not_draw_is_told_so_without_a_foreign_warning(world):
    done = world()
    assert done.code == 0
    assert "No video: FirstBug-v0 has no `render`." in done.err + done.out
    assert "WARN" not in done.err + done.out
    assert "registration.py" not in done.err + done.out


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--algo", "ppo", "vectorization_mode=sync", "eval_freq_epochs=0", "max_env_steps=32", "n_steps=32"],
        ["env", "check", "--steps", "20"],
        ["play", "--mode", "random", "--headless", "--episodes", "1"],
    ],
)
def test_an_environment_in_a_file_is_named_by_the_file_on_the_command_line(cli, tmp_path, command):
    (tmp_path / "first_bug.py").write_text(MODULE.format(**FINE))
    done = cli(*command, "first_bug.py:FirstBug-v0")
    forget()
    assert "error:" not in done.err
    (tmp_path / "mine.yaml").write_text("env_id: first_bug.py:FirstBug-v0\nalgo_id: ppo\n")
    refused = cli("train", "mine.yaml").err
    assert "Write env_id: FirstBug-v0, and give the file with `--plugin first_bug.py`" in refused


def test_a_run_of_an_environment_in_a_file_names_the_file(world, cli):
    world()
    forget()
    short = ["vectorization_mode=sync", "eval_freq_epochs=0", "video=false", "max_env_steps=32", "n_steps=32"]
    assert cli("train", "first_bug.py:FirstBug-v0", "--algo", "ppo", *short, "--run-id", "mine").code == 0
    forget()
    assert "\n  gymlab eval mine --plugin first_bug.py\n" in cli("eval", "mine").err


@pytest.fixture
def of_a_plugin(world, cli, tmp_path):
    """A run of an environment whose module is not loaded any more."""
    assert world().code == 0
    forget()
    (tmp_path / "first_bug.py").write_text((tmp_path / "first_bug.py").read_text() + "\nopen('imported', 'w')\n")
    return cli


def forget():
    sys.modules.pop("first_bug", None)
    gym.registry.pop("FirstBug-v0", None)


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "@last", "--episodes", "3"],
        ["eval", "--run-id", "@last"],
        ["play", "@last", "--headless"],
        ["record", "@last", "--out", "demos"],
        ["train", "--resume", "@last", "max_env_steps=96"],
        ["set", "@last", "policy_lr=1e-5"],
    ],
)
def test_a_run_that_needs_a_plugin_says_the_whole_command_and_imports_nothing(of_a_plugin, tmp_path, command):
    done = of_a_plugin(*command)
    assert done.code == 2
    assert f"\n  gymlab {' '.join(command)} --plugin first_bug\n" in done.err
    assert "first_bug" not in sys.modules
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("command", [["train", "Nope-v0", "--algo", "ppo"], ["env", "check", "Nope-v0"]])
def test_a_command_that_names_no_run_hears_nothing_of_the_newest_one(of_a_plugin, command):
    done = of_a_plugin(*command)
    assert done.code == 2
    assert "Unknown environment 'Nope-v0'" in done.err
    assert "first_bug" not in done.err


@pytest.mark.parametrize("command", [["eval"], ["play", "--headless"]])
def test_a_command_whose_default_is_the_newest_run_names_its_plugin(of_a_plugin, command):
    assert f"\n  gymlab {' '.join(command)} --plugin first_bug\n" in of_a_plugin(*command).err


def test_with_the_plugin_the_command_runs(of_a_plugin):
    assert of_a_plugin("eval", "@last", "--episodes", "3", "--plugin", "first_bug").code == 0


def test_a_recorded_plugin_is_named_but_for_one_that_nobody_would_write(of_a_plugin, tmp_path):
    record = tmp_path / "runs" / "@last" / "run.json"
    kept = json.loads(record.read_text())
    record.write_text(json.dumps(kept | {"plugins": ["first_bug", "other.one", "$(rm -r /)"]}))
    error = of_a_plugin("eval", "@last").err
    assert "--plugin first_bug --plugin other.one\n" in error
    assert "rm -r" not in error


LARGE = """
import gymnasium as gym
import numpy as np


class Large(gym.Env):
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Dict(
        {f"sensor_{index}": gym.spaces.Box(-index - 1, index + 1, (3,), np.float32) for index in range(60)}
        | {"camera": gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)}
    )


gym.register("FirstBug-v0", entry_point=Large)
"""


def test_a_large_dict_space_fits_a_screen_and_its_picture_is_noticed(cli, tmp_path):
    (tmp_path / "first_bug.py").write_text(LARGE)
    done = cli("describe", "first_bug:FirstBug-v0", "--algo", "ppo", "vectorization_mode=sync")
    forget()
    assert done.code == 0, done.err
    head = done.out[: done.out.index("policy parameters")]
    assert len(head.splitlines()) <= 16
    assert "Dict of 61 parts: camera (3,072), sensor_0 (3)" in " ".join(head.split())
    assert "The picture 'camera' (32x32x3) is a part of a Dict" in " ".join(head.split())
