"""Atari 2600 games (`ALE/Pong-v5`) as pictures, memory or objects, by named protocols.

| protocol | sticky | life loss | no-ops | fire | training reward | actions |
|---|---|---|---|---|---|---|
| v5 (default) | 0.25 | ends nothing | none | by the agent | clipped | the game's own |
| classic | 0 | terminates in training | 1 to 30 | at the start and after a lost life | clipped | the game's own |
| machado | 0.25 | ends nothing | none | by the agent | clipped | all 18 |
| atari100k | 0 | terminates in training | 1 to 30 | by the agent | clipped | the game's own |

`v5` is what ALE/*-v5 is registered as; `classic` is what Stable-Baselines3's AtariWrapper does to a NoFrameskip-v4 game, and
so what the RL Zoo trains on; `machado` adds the full action set of Machado et al. (2018), section 5; `atari100k` is Kaiser et
al. (2020): 100,000 steps, which are 400,000 frames. All end an episode after 108,000 frames. Rewards are whole numbers, of
which clipping to [-1, 1] leaves the sign.
Evaluation never clips rewards nor ends a return at a lost life. Returns are the game's own score everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import gymnasium as gym

from gymlab.config.schema import Config
from gymlab.envs.families import Family, register_family, require
from gymlab.envs.families.atari_game import AtariGame, AtariSettings
from gymlab.envs.families.atari_vector import AtariVector
from gymlab.envs.vector import EnvironmentSpec, Seeds, VectorEnv
from gymlab.envs.wrappers.atari import ClipReward, LifeLoss
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

COMMON: dict[str, Any] = {
    "repeat_action_probability": 0.25,
    "full_action_space": False,
    "noop_max": 0,
    "use_fire_reset": False,
    "max_num_frames_per_episode": 108_000,
    "episodic_life": False,
    "reward_clipping": True,
    "max_pool": True,
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "v5": COMMON,
    "classic": {
        **COMMON,
        "repeat_action_probability": 0.0,
        "noop_max": 30,
        "use_fire_reset": True,
        "episodic_life": True,
    },
    "machado": {**COMMON, "full_action_space": True},
    "atari100k": {**COMMON, "repeat_action_probability": 0.0, "noop_max": 30, "episodic_life": True},
}
"""Settings by the name that `env_kwargs.protocol` may have; any of them may be given beside it and wins."""
FURTHER = ("protocol", "frameskip", "mode", "difficulty")
"""Keys of `env_kwargs` beside the settings of a protocol."""
TRAINING_ONLY = ("episodic_life", "reward_clipping")


class AtariFamily(Family):
    """Games of the Arcade Learning Environment."""

    name: ClassVar[str] = "atari"
    prefixes: ClassVar[tuple[str, ...]] = ("ALE/",)
    skips_frames: ClassVar[bool] = True

    def resolve(self, env_id: str) -> str:
        """An id with a ROM; a game without a version is its v5."""
        known = _roms()
        if env_id in known:
            return env_id
        if f"{env_id}-v5" in known:
            return f"{env_id}-v5"
        raise EnvironmentFailure(f"Unknown Atari game {env_id!r}. {did_you_mean(env_id, known)}")

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """The emulator itself limits the time, in frames."""
        return EnvironmentSpec(env_id)

    def configured(self, env_id: str, config: Config, purpose: str) -> dict[str, Any]:
        """The protocol's settings with the config's on top, as arguments of `AtariSettings`."""
        given = dict(config.env_kwargs)
        protocol = given.pop("protocol", "v5")
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"env_kwargs.protocol of {env_id} is {protocol!r}; expected {', '.join(PROTOCOLS)}. "
                f"{did_you_mean(str(protocol), PROTOCOLS)}"
            )
        known = [*COMMON, *FURTHER]
        for key in given:
            if key not in known:
                raise ConfigError(
                    f"env_kwargs of {env_id} has no {key!r}. {did_you_mean(key, known)} Known: {', '.join(known)}."
                )
        settings = {**PROTOCOLS[protocol], "mode": None, "difficulty": None, **given}
        # `frameskip: 1` in a file says that the frames are skipped outside the emulator, which is what frame_skip does.
        frame_skip = int(settings.pop("frameskip", 1))
        if purpose != "train":
            settings.update(dict.fromkeys(TRAINING_ONLY, False))
        return {
            **settings,
            "game": _game(env_id),
            "rom": _roms()[env_id],
            "protocol": protocol,
            "obs_type": config.obs_type if config.obs_type in ("ram", "objects") else "rgb",
            "grayscale": config.grayscale_obs,
            "frame_skip": frame_skip if frame_skip > 1 else config.frame_skip,
        }

    def notice(self, env_kwargs: dict[str, Any], config: Config) -> str:
        """The protocol in words, with the picture that the agent sees."""
        settings = AtariSettings(**env_kwargs)
        seen = settings.obs_type
        if seen == "rgb":
            height, width = config.resize_obs or (210, 160)
            seen = f"{height}x{width} {'grey' if settings.grayscale else 'colour'}, {config.frame_stack} frames"
        return f"Atari {settings.describe()}, {seen}. Evaluation and returns: whole games, the game's own score."

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One emulator."""
        return AtariGame(AtariSettings(**env_kwargs), render_mode)

    def shown(self, env: gym.Env, env_kwargs: dict[str, Any]) -> gym.Env:
        """Lost lives and clipped rewards, above the recorder of the game's own score."""
        if env_kwargs["reward_clipping"]:
            env = ClipReward(env)
        return LifeLoss(env) if env_kwargs["episodic_life"] else env

    def obstacle_to_native(self, config: Config, env_kwargs: dict[str, Any]) -> str:
        """The vector version gives stacked pictures and nothing else."""
        if env_kwargs["obs_type"] != "rgb":
            return f"obs_type: {env_kwargs['obs_type']} is read in single environments."
        if config.env_wrappers:
            return "env_wrappers works on single environments."
        if config.resize_obs is None:
            return "the vector version gives pictures of another size than the screen's: set resize_obs."
        if not env_kwargs["grayscale"] and config.frame_stack > 1:
            return "frame_stack of colour pictures works on single environments."
        if env_kwargs["mode"] is not None or env_kwargs["difficulty"] is not None:
            return "mode and difficulty are set in single environments."
        return ""

    def make_native(
        self,
        config: Config,
        spec: EnvironmentSpec,
        env_kwargs: dict[str, Any],
        num_envs: int,
        seeds: Seeds,
        purpose: str,
    ) -> VectorEnv:
        """ale-py's vector environment."""
        assert config.resize_obs is not None
        settings = AtariSettings(**env_kwargs)
        return AtariVector(settings, spec, num_envs, seeds, purpose, size=config.resize_obs, stack=config.frame_stack)

    def ids(self) -> Iterable[str]:
        """Every single-player game whose ROM is there."""
        return sorted(_roms())


@cache
def _roms() -> dict[str, str]:
    """ROM by id."""
    roms = require("ale_py.roms", "An Atari game", "atari")
    many_players = {"combat", "joust", "maze_craze", "warlords"}
    return {f"ALE/{rom.title().replace('_', '')}-v5": rom for rom in roms.get_all_rom_ids() if rom not in many_players}


def _game(env_id: str) -> str:
    return re.sub(r"^ALE/|-v\d+$", "", env_id)


register_family(AtariFamily())
