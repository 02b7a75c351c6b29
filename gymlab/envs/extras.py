"""What each family of environments needs installed, and whether it is: looked up, never imported."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass

from gymlab.config.environment_ids import family_of
from gymlab.errors import NotInstalled

EXTRA_OF_MODULE = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
}
"""What the environments of a module of Gymnasium need, by name in `NEEDS`; the others come with gymlab itself."""
DEBIAN_PACKAGES = {
    "libGL": "libgl1",
    "libEGL": "libegl1",
    "libGLX": "libglx0",
    "libGLU": "libglu1-mesa",
    "libOSMesa": "libosmesa6",
    "libglfw": "libglfw3",
    "libgthread-2.0": "libglib2.0-0",
    "libglib-2.0": "libglib2.0-0",
    "libSM": "libsm6",
    "libXext": "libxext6",
    "libXrender": "libxrender1",
    "libX11": "libx11-6",
    "libSDL2-2.0": "libsdl2-2.0-0",
    "libopenal": "libopenal1",
    "libgomp": "libgomp1",
}
"""Debian's package of a library of the system that pictures and games need, by the library's name."""


@dataclass(frozen=True)
class Needs:
    """What has to be installed for some environments."""

    name: str
    """As in `NEEDS`."""
    requirement: str
    """As pip knows it: `gymlab[atari]`."""
    modules: tuple[str, ...]
    """What is imported."""
    then: str = ""
    """A second command, where one cannot do it."""

    @property
    def pip_lines(self) -> tuple[str, ...]:
        """Commands that install it, in order."""
        first = f"pip install '{self.requirement}'"
        return (first, self.then) if self.then else (first,)

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that are not there."""
        return tuple(module for module in self.modules if importlib.util.find_spec(module) is None)


def _extra(name: str, *modules: str, then: str = "") -> Needs:
    return Needs(name, f"gymlab[{name}]", modules, then)


NEEDS = {
    needs.name: needs
    for needs in (
        _extra("box2d", "Box2D"),
        _extra("atari", "ale_py", "cv2"),
        # ocatari asks for numpy<2 and for another OpenCV, and runs without both; an extra cannot say --no-deps.
        _extra("objects", "ale_py", "cv2", "termcolor", "skimage", "ocatari", then="pip install --no-deps ocatari"),
        _extra("vizdoom", "vizdoom"),
        _extra("retro", "stable_retro"),
        _extra("mujoco", "mujoco"),
        _extra("dmc", "dm_control"),
        _extra("minigrid", "minigrid"),
        _extra("crafter", "crafter"),
        _extra("brax", "brax", "jax"),
        Needs("jax", "gymnasium[jax]", ("jax",)),
        _extra("offline", "minari", "h5py"),
    )
}
"""By family, or by part of one that needs more: `objects` are Atari's, `box2d` and `mujoco` are Gymnasium's; `offline` is
for recorded episodes of any."""


def needs_of(env_id: str, obs_type: str | None = None) -> Needs | None:
    """What an environment needs beside gymlab; None: nothing."""
    family = family_of(env_id)
    if family == "atari" and obs_type == "objects":
        return NEEDS["objects"]
    if family != "gymnasium":
        return NEEDS.get(family)
    import gymnasium

    spec = gymnasium.registry.get(env_id)
    module = str(spec.entry_point).partition(":")[0] if spec else ""
    name = next((name for prefix, name in EXTRA_OF_MODULE.items() if module.startswith(prefix)), None)
    return None if name is None else NEEDS[name]


def missing_library(error: BaseException) -> str:
    """What to install where an installed package lacks a library of the system; empty for any other error."""
    found = re.search(r"(?P<file>(?P<name>lib[\w+-]+(?:-\d[\d.]*)?)\.so[.\d]*): cannot open shared object", str(error))
    if found is None:
        return ""
    package = DEBIAN_PACKAGES.get(found["name"])
    line = f"apt-get install {package}" if package else f"apt-file search {found['file']} names the package"
    return f"the system's library {found['file']} is not installed. On Debian and Ubuntu: {line}"


def missing_extra(family: str, env_id: str, error: Exception) -> NotInstalled:
    """The error whose message is the pip line to run; `family` is a name in `NEEDS`.

    try:
        import ale_py
    except ImportError as error:
        raise missing_extra("atari", env_id, error) from error
    """
    library = missing_library(error)
    if library:
        return NotInstalled(f"{env_id} cannot be made: {library}")
    lines = " && ".join(NEEDS[family].pip_lines)
    return NotInstalled(f"{env_id} needs a package that is not installed ({error}). Run: {lines}")
