"""What an author reads of an error in their environment: their own file and line first, and no line of ours."""

import importlib
import subprocess
import sys

import pytest

from gymlab.envs.contract import EnvironmentExit, contained
from gymlab.envs.crash import MOST_LINES, describe_crash, method_place

MODULE = """
import sys

import numpy as np


def helper(table):
    return table["door"]


def deep(count):
    return deep(count - 1) if count else 1 / 0


def step(kind):
    if kind == "own":
        return helper({})
    if kind == "library":
        return np.zeros(3).reshape(2, 2)
    if kind == "cause":
        try:
            helper({})
        except KeyError as error:
            raise RuntimeError("no way out") from error
    if kind == "exit":
        sys.exit(3)
    if kind == "lines":
        raise ValueError("first\\nsecond")
    if kind == "wall":
        raise ValueError("\\n".join("word" for _ in range(200)))
    if kind == "deep":
        deep(50)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "some_world.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("some_world")
    del sys.modules["some_world"]


def told(module, kind):
    try:
        with contained():
            module.step(kind)
    except Exception as error:
        # Without the frame of this function.
        return describe_crash(error.with_traceback(error.__traceback__.tb_next)).splitlines()
    raise AssertionError("nothing was raised")


def test_the_line_that_raised_comes_first_and_who_called_it_below(module):
    assert told(module, "own") == [
        "some_world.py:8, in helper: KeyError: 'door'",
        '    return table["door"]',
        "  called from some_world.py:17, in step",
        "    return helper({})",
    ]


def test_of_an_error_in_a_library_the_authors_line_is_told(module):
    lines = told(module, "library")
    assert lines[0] == "some_world.py:19, in step: ValueError: cannot reshape array of size 3 into shape (2,2)"
    assert len(lines) == 2


def test_what_caused_an_error_follows(module):
    lines = told(module, "cause")
    assert lines[0] == "some_world.py:24, in step: RuntimeError: no way out"
    assert lines[2] == "caused by some_world.py:8, in helper: KeyError: 'door'"


def test_who_ends_the_program_is_named_by_their_line(module):
    assert told(module, "exit")[0] == (
        "some_world.py:26, in step: the environment tried to end the program (SystemExit: 3)"
    )
    assert issubclass(EnvironmentExit, RuntimeError)


@pytest.mark.parametrize("kind", ["wall", "deep"])
def test_it_fits_a_screen(module, kind):
    assert len(told(module, kind)) <= MOST_LINES
    assert told(module, "lines")[:2] == ["some_world.py:28, in step: ValueError: first", "second"]


def test_an_error_of_a_package_alone_names_the_package():
    with pytest.raises(OSError, match="No such file") as caught:
        subprocess.run(["/no/such/program"], check=False)
    trace = caught.value.__traceback__
    assert trace is not None
    first = describe_crash(caught.value.with_traceback(trace.tb_next)).splitlines()[0]
    assert "subprocess.py:" in first
    assert "FileNotFoundError: " in first


def test_the_place_of_a_method_is_told_where_it_is_the_authors_alone(tmp_path, monkeypatch):
    (tmp_path / "two_worlds.py").write_text(
        "class A:\n    def step(self):\n        pass\n\n\nclass B(A):\n    def step(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("two_worlds")
    assert method_place([module.A()], "step") == "two_worlds.py:2, in step"
    assert method_place([module.A(), module.B()], "step") == ""
    assert method_place([{}], "get") == ""
    del sys.modules["two_worlds"]
