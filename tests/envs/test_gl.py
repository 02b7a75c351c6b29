"""The choice of a GL backend, with processes that draw, fail or hang in the place of MuJoCo."""

import json
import os

import pytest

from gymlab.envs import gl
from gymlab.errors import EnvironmentFailure

pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM"):
        # Set first, so that monkeypatch takes back what the code sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gl._choose.cache_clear()
    yield
    gl._choose.cache_clear()


def pretend(monkeypatch, *working):
    """Only these backends draw; returns the list of those that were tried."""
    tried = []

    def draws(backend):
        tried.append(backend)
        return backend in working

    monkeypatch.setattr(gl, "draws", draws)
    return tried


def test_the_first_that_draws_is_chosen_and_remembered(monkeypatch):
    tried = pretend(monkeypatch, "osmesa", "glfw")
    assert gl.prepare_gl(drawing=True) == "osmesa"
    assert tried == ["egl", "osmesa"]
    assert (os.environ["MUJOCO_GL"], os.environ["PYOPENGL_PLATFORM"]) == ("osmesa", "osmesa")
    assert list(json.loads(gl.cache_file().read_text()).values()) == ["osmesa"]
    monkeypatch.delenv("MUJOCO_GL")
    gl._choose.cache_clear()
    assert gl.prepare_gl(drawing=True) == "osmesa"
    assert tried == ["egl", "osmesa"]


def test_the_choice_is_said_once_as_soon_as_there_is_a_log(monkeypatch, caplog):
    pretend(monkeypatch, "egl")
    gl._say.cache_clear()
    gl.prepare_gl(drawing=True)
    assert caplog.messages == []
    caplog.set_level("INFO", "gymlab")
    gl.prepare_gl(drawing=False)
    gl.prepare_gl(drawing=True)
    gl.prepare_gl(drawing=True)
    assert caplog.messages == ["MuJoCo draws with egl."]


def test_another_mujoco_is_tried_anew(monkeypatch):
    tried = pretend(monkeypatch, "egl")
    gl.probe()
    monkeypatch.setattr(gl.importlib.metadata, "version", lambda name: "99")
    gl.prepare_gl(drawing=False)
    assert tried == ["egl", "egl"]


def test_where_nothing_draws_only_a_picture_is_refused(monkeypatch):
    pretend(monkeypatch)
    assert gl.prepare_gl(drawing=False) == gl.OFF
    with pytest.raises(EnvironmentFailure, match=r"libegl1 libgl1-mesa-dri.*libosmesa6"):
        gl.prepare_gl(drawing=True)
    assert not gl.cache_file().exists()


def test_the_users_choice_stays(monkeypatch):
    tried = pretend(monkeypatch, "egl")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert gl.prepare_gl(drawing=True) == "glfw"
    assert tried == []


def test_a_damaged_cache_is_no_answer(monkeypatch):
    pretend(monkeypatch, "glfw")
    gl.cache_file().parent.mkdir(parents=True)
    for content in ("{", "[]", '{"x": 1}'):
        gl.cache_file().write_text(content)
        gl._choose.cache_clear()
        monkeypatch.delenv("MUJOCO_GL", raising=False)
        assert gl.prepare_gl(drawing=True) == "glfw"


@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("print('drawn')", True),
        ("print('black')", False),
        ("import os; os.abort()", False),
        ("import time; time.sleep(60)", False),
        ("import os; print('drawn' if os.environ['MUJOCO_GL'] == 'egl' else '')", True),
    ],
)
def test_a_probe_may_crash_or_hang(monkeypatch, code, works):
    monkeypatch.setattr(gl, "PROBE", code)
    monkeypatch.setattr(gl, "PROBE_TIMEOUT", 20.0 if works else 3.0)
    assert gl.draws("egl") is works
