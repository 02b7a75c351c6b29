"""OpenGL without a screen: finds out which of MuJoCo's backends draws here, before anything imports mujoco.

MuJoCo and dm_control read `MUJOCO_GL` once, at their import, and a backend that does not work may end the process. So each
one draws a picture in a process of its own, the first that can is taken, and the answer is kept in the user's cache.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from gymlab.errors import EnvironmentFailure
from gymlab.user_cache import in_user_cache

logger = logging.getLogger(__name__)

BACKENDS = ("egl", "osmesa", "glfw")
"""In order of preference: a graphics card or Mesa, Mesa in memory, a screen."""
OFF = "disable"
"""What MUJOCO_GL is where nothing draws: mujoco can still be imported."""
PROBE_TIMEOUT = 60.0
PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 3'/><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 16, 16)
renderer.update_scene(data)
print("drawn" if renderer.render().max() > 0 else "black", flush=True)
import os
os._exit(0)
"""
"""Draws a ball. It leaves without clean-up, which some drivers crash in."""
ADVICE = (
    "MuJoCo can draw nothing here: none of egl, osmesa and glfw works. On Debian or Ubuntu run "
    "`apt-get install libegl1 libgl1-mesa-dri` (egl), or `apt-get install libosmesa6` (osmesa), "
    "then `gymlab doctor`, which tries again."
)


def prepare_gl(*, drawing: bool) -> str:
    """Choose a backend and tell MuJoCo about it by MUJOCO_GL; a choice made by the user stays. Returns its name.

    To be called before mujoco is imported, even when nothing is drawn yet: it cannot be chosen afterwards.
    """
    _calm_software_rendering()
    chosen = os.environ.get("MUJOCO_GL") or (_choose() if sys.platform.startswith("linux") else "glfw")
    if drawing and chosen == OFF:
        raise EnvironmentFailure(ADVICE)
    if "MUJOCO_GL" not in os.environ and sys.platform.startswith("linux"):
        os.environ["MUJOCO_GL"] = chosen
        if chosen in ("egl", "osmesa"):
            os.environ.setdefault("PYOPENGL_PLATFORM", chosen)
    # The first environments are made before a run has its log: who cannot hear it yet is told at the next one.
    if drawing and logger.isEnabledFor(logging.INFO):
        _say(chosen)
    return chosen


@cache
def _say(backend: str) -> None:
    logger.info("MuJoCo draws with %s.", backend)


def _calm_software_rendering() -> None:
    # Mesa's software renderer has threads, which a forked worker would wait for and not have.
    os.environ.setdefault("LP_NUM_THREADS", "0")


@cache
def _choose() -> str:
    """The backend that drew last time under the same conditions, or the first that does now."""
    return _remembered() or probe()


def probe() -> str:
    """Try the backends afresh and remember the one that draws; `disable` where none does."""
    for backend in BACKENDS:
        if draws(backend):
            _remember(backend)
            return backend
    return OFF


def draws(backend: str) -> bool:
    """Whether a process with this backend gets a picture out of MuJoCo."""
    environment = {**os.environ, "MUJOCO_GL": backend}
    if backend != "glfw":
        environment["PYOPENGL_PLATFORM"] = backend
    try:
        told = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, timeout=PROBE_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return told.stdout.strip() == b"drawn"


def cache_file() -> Path:
    """Where the answer is kept."""
    return in_user_cache("gl.json")


def _conditions() -> str:
    """What the answer depends on: the interpreter, MuJoCo's version and the screen."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or "no screen"
    return f"{sys.executable}, mujoco {importlib.metadata.version('mujoco')}, {os.uname().nodename}, {screen}"


def _remembered() -> str | None:
    try:
        answers = json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    answer = answers.get(_conditions()) if isinstance(answers, dict) else None
    return answer if answer in BACKENDS else None


def _remember(backend: str) -> None:
    """Keep an answer. That nothing works is never kept: a package may be installed the next minute."""
    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({_conditions(): backend}), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        logger.info("The choice of a GL backend cannot be kept in %s: %s", path, error)
