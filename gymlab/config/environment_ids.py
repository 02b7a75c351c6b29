"""Environment ids: families and their defaults, and ids that Gymnasium has retired."""

from __future__ import annotations

import re
import sys
from typing import Any

from gymlab.config.wording import hint
from gymlab.errors import Unregistered

_FAMILIES = {
    "ALE/": "atari",
    "VizDoom-": "vizdoom",
    "Retro/": "retro",
    "Bandit-": "bandit",
    "Bandit/": "bandit",
    "dmc/": "dmc",
    "MiniGrid-": "minigrid",
    "Crafter-": "crafter",
    "CrafterReward-": "crafter",
    "CrafterNoReward-": "crafter",
    "brax/": "brax",
}
_KINDS = {
    "atari": "Atari",
    "vizdoom": "VizDoom",
    "retro": "Retro",
    "bandit": "bandits",
    "dmc": "the DeepMind Control Suite",
    "minigrid": "MiniGrid",
    "crafter": "Crafter",
    "brax": "Brax",
}
_KINDS_OF_GYMNASIUM = {
    "classic_control": "classic control",
    "toy_text": "toy text",
    "box2d": "Box2D",
    "mujoco": "MuJoCo",
}
OTHER_KIND = "other environments"
_VERSION = re.compile(r"(?P<name>.+)-v(?P<version>\d+)")
_PIXELS: dict[str, Any] = {
    "obs_type": "rgb",
    "grayscale_obs": True,
    "resize_obs": [84, 84],
    "frame_stack": 4,
    "frame_skip": 4,
}
_ATARI_NUMBERS: dict[str, dict[str, Any]] = {
    "ram": {"frame_skip": 4, "normalize_obs": "static"},
    "objects": {"frame_skip": 4},
}


def family_of(env_id: str) -> str:
    """The family an id belongs to; `gymnasium` for everything that is not ours to prepare."""
    for prefix, family in _FAMILIES.items():
        if env_id.startswith(prefix):
            return family
    return "gymnasium"


def kind_of(env_id: str) -> str:
    """The kind of environment in people's words: a family of ours, a package of Gymnasium, or another."""
    family = family_of(env_id)
    if family in _KINDS:
        return _KINDS[family]
    from gymnasium import registry

    spec = registry.get(env_id)
    package, _, rest = str(spec.entry_point if spec else "").partition("gymnasium.envs.")
    return OTHER_KIND if package else _KINDS_OF_GYMNASIUM.get(rest.partition(".")[0].partition(":")[0], OTHER_KIND)


def family_defaults(env_id: str, obs_type: Any) -> dict[str, Any]:
    """What the fields of an image environment are unless a file says otherwise."""
    family = family_of(env_id)
    if family == "atari" and obs_type in _ATARI_NUMBERS:
        return _ATARI_NUMBERS[obs_type]
    if family not in ("atari", "vizdoom", "retro") or obs_type not in (None, "rgb"):
        return {}
    processes = {} if family == "atari" else {"vectorization_mode": "async"}
    return {**_PIXELS, **processes, "model_id": "cnn_nature"}


def current_id(env_id: str) -> tuple[str, str | None]:
    """The id to use, and a notice when Gymnasium has retired the one that was asked for."""
    match = _VERSION.fullmatch(env_id)
    if match is None or family_of(env_id) != "gymnasium" or ":" in env_id:
        return env_id, None
    from gymnasium import registry

    spec = registry.get(env_id)
    # MuJoCo versions up to 3 are still listed, but only to say that they have moved out.
    gone = spec is None or (
        spec.entry_point is not None and "mujoco" in str(spec.entry_point) and int(match["version"]) <= 3
    )
    prefix = f"{match['name']}-v"
    versions = [int(name.removeprefix(prefix)) for name in registry if re.fullmatch(re.escape(prefix) + r"\d+", name)]
    newest = max(versions, default=-1)
    if not gone or newest <= int(match["version"]):
        return env_id, None
    return f"{prefix}{newest}", f"{env_id} has been retired by Gymnasium; {prefix}{newest} is used."


def check_known(env_id: str, described: list[str]) -> None:
    """An id without a file must be one that Gymnasium, a family or the user's own module provides."""
    if family_of(env_id) != "gymnasium" or ":" in env_id:
        return
    from gymnasium import registry

    if env_id not in registry:
        known = sorted({*described, *registry})
        raise Unregistered(
            f"Unknown environment {env_id!r}. {hint(env_id, known)}`gymlab list` shows those with experiments. "
            "Any Gymnasium id works with --algo, and one of your own as module:EnvId or FILE.py:EnvId."
        )


def check_module(env_id: str, named_by_user: str, place: str) -> None:
    """`module:EnvId` imports a module: only the user may name it, on the command line or as a plugin."""
    module, colon, name = env_id.partition(":")
    if colon and module.endswith(".py"):
        raise Unregistered(
            f"{place}: env_id {env_id!r} names a file. Write env_id: {name}, and give the file with `--plugin {module}`."
        )
    if colon and env_id not in named_by_user and module not in sys.modules:
        raise Unregistered(
            f"{place}: env_id {env_id!r} would import the module {module!r}, and a config file may not do that. "
            f"Name it on the command line: `gymlab train {env_id} --algo ...`, or add `--plugin {module}`."
        )
