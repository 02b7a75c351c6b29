"""What families need, and how a missing package is told."""

import sys
import tomllib
from pathlib import Path

import pytest

from gymlab.envs.extras import NEEDS, missing_extra, missing_library, needs_of
from gymlab.errors import EnvironmentFailure, NotInstalled

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    ("env_id", "obs_type", "name"),
    [
        ("CartPole-v1", None, None),
        ("Bandit-v0", None, None),
        ("LunarLander-v3", None, "box2d"),
        ("HalfCheetah-v5", None, "mujoco"),
        ("ALE/Pong-v5", "rgb", "atari"),
        ("ALE/Pong-v5", "objects", "objects"),
        ("VizDoom-Basic-v0", None, "vizdoom"),
        ("Retro/Airstriker-Genesis-v0", None, "retro"),
        ("dmc/cartpole-swingup", None, "dmc"),
        ("MiniGrid-Empty-8x8-v0", None, "minigrid"),
        ("Crafter-v1", None, "crafter"),
        ("brax/ant", None, "brax"),
    ],
)
def test_what_an_environment_needs(env_id, obs_type, name):
    needs = needs_of(env_id, obs_type)
    assert (needs.name if needs else None) == name


@pytest.mark.parametrize("needs", NEEDS.values(), ids=NEEDS)
def test_every_extra_of_gymlab_that_is_named_exists(needs):
    package, _, extra = needs.requirement.removesuffix("]").partition("[")
    assert package != "gymlab" or EXTRAS[extra]


def test_a_module_is_looked_for_and_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert "cv2" in NEEDS["atari"].missing


def test_the_error_is_the_pip_line():
    error = missing_extra("objects", "ALE/Pong-v5", ImportError("No module named 'ocatari'"))
    assert isinstance(error, NotInstalled)
    assert isinstance(error, EnvironmentFailure)
    assert str(error).endswith("Run: pip install 'gymlab[objects]' && pip install --no-deps ocatari")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("libGL.so.1: cannot open shared object file: No such file or directory", "apt-get install libgl1"),
        ("libOSMesa.so.8: cannot open shared object file", "apt-get install libosmesa6"),
        ("libSDL2-2.0.so.0: cannot open shared object file", "apt-get install libsdl2-2.0-0"),
        ("libgthread-2.0.so.0: cannot open shared object file", "apt-get install libglib2.0-0"),
        ("libstrange.so.3: cannot open shared object file", "apt-file search libstrange.so.3"),
    ],
)
def test_a_library_of_the_system_is_named_by_its_debian_package(text, words):
    error = missing_extra("atari", "ALE/Pong-v5", ImportError(text))
    assert words in str(error)
    assert "pip install" not in str(error)
    assert missing_library(ImportError("No module named 'cv2'")) == ""
