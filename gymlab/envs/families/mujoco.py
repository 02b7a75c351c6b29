"""Gymnasium's MuJoCo robots: Gymnasium's own ids, with a GL backend chosen before mujoco is imported."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym

from gymlab.envs.families import register_family
from gymlab.envs.families.standard import StandardFamily
from gymlab.envs.gl import prepare_gl

ROBOTS = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)


class MujocoFamily(StandardFamily):
    """Robots of Gymnasium's registry."""

    name: ClassVar[str] = "mujoco"
    prefixes: ClassVar[tuple[str, ...]] = tuple(f"{robot}-v" for robot in ROBOTS)
    own_files: ClassVar[str] = "models of Gymnasium, such as ant.xml"

    def is_own_file(self, option: str, text: str) -> bool:
        """A model of Gymnasium by its name: one with a folder before it may be anywhere."""
        models = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
        return option == "xml_file" and text in {path.name for path in models.glob("*.xml")}

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One robot; without mujoco the error is the pip line."""
        if find_spec("mujoco") is not None:
            prepare_gl(drawing=render_mode == "rgb_array")
        return super().make(env_id, env_kwargs, render_mode)

    def ids(self) -> Iterable[str]:
        """The robots in Gymnasium's registry."""
        return [name for name in super().ids() if name.startswith(self.prefixes)]


register_family(MujocoFamily())
