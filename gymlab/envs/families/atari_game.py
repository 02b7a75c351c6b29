"""One Atari game as a Gymnasium environment, straight on the emulator: pictures, memory or the objects on the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.families import require
from gymlab.envs.step import FRESH_START
from gymlab.errors import ConfigError

CLOCK = 60.0
"""Frames a second of the console."""


@dataclass(frozen=True)
class AtariSettings:
    """Everything that decides what an episode of a game is."""

    game: str
    """Name as in the id: `MsPacman`."""
    rom: str
    """Name of the ROM: `ms_pacman`."""
    protocol: str
    """Named settings that these came from."""
    obs_type: str
    """rgb, ram or objects."""
    grayscale: bool
    """Whether pictures have no colour."""
    frame_skip: int
    """Frames an action lasts."""
    max_pool: bool
    """Show the brighter of the last two frames: many games draw an object in every other frame only."""
    repeat_action_probability: float
    """Chance that a frame repeats the action before it (sticky actions)."""
    full_action_space: bool
    """All 18 actions of the joystick, or those that do something in this game."""
    noop_max: int
    """An episode begins after 1 to this many frames of doing nothing; 0: none."""
    use_fire_reset: bool
    """Take the actions of `fire_actions` at the start and after each lost life, in games that wait for the button."""
    max_num_frames_per_episode: int
    """Frames after which an episode is truncated."""
    episodic_life: bool
    """Whether the loss of a life is a termination to the agent; the episode goes on, and so do its statistics."""
    reward_clipping: bool
    """Whether the agent is shown rewards cut to [-1, 1]."""
    mode: int | None = None
    """Mode of the game's cartridge; none: its own."""
    difficulty: int | None = None
    """Difficulty switch; none: the game's own."""

    def describe(self) -> str:
        """One line for people."""
        parts = [
            f"sticky actions {self.repeat_action_probability:g}",
            "a lost life ends the return" if self.episodic_life else "a lost life ends nothing",
            f"up to {self.noop_max} no-ops" if self.noop_max else "no no-ops",
            "rewards clipped to [-1, 1]" if self.reward_clipping else "rewards as they are",
            f"frame skip {self.frame_skip}" + (" with the maximum of the last two" if self.max_pool else ""),
            "18 actions" if self.full_action_space else "the game's own actions",
            *(["fire pressed at the start and after a lost life"] if self.use_fire_reset else []),
            f"{self.max_num_frames_per_episode:,} frames at most",
        ]
        return f"protocol {self.protocol}: {', '.join(parts)}"


def fire_actions(meanings: Sequence[str]) -> tuple[int, ...]:
    """Actions that serve the ball, as in Stable-Baselines3's wrapper: the button, then the action after it. None in a game without the button."""
    return (1, 2) if meanings[1:2] == ["FIRE"] and len(meanings) > 2 else ()


def life_lost(before: int, after: int) -> bool:
    """Whether a life is gone and the game goes on."""
    return 0 < after < before


class AtariGame(gym.Env):
    """An emulator with one ROM. A step is `frame_skip` frames; `info["lives"]` tells the lives left."""

    def __init__(self, settings: AtariSettings, render_mode: str | None = None) -> None:
        import ale_py

        self.settings = settings
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array", "human"], "render_fps": CLOCK / settings.frame_skip}
        self.objects: list[Any] = []
        """What is on the screen, as OCAtari names it; only with obs_type objects."""
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", settings.repeat_action_probability)
        self.ale.setInt("max_num_frames_per_episode", settings.max_num_frames_per_episode)
        if render_mode == "human":
            self.ale.setBool("display_screen", True)
        self._path = str(ale_py.roms.get_rom_path(settings.rom))
        self._first_frame = 0
        self._load()
        self.minimal_actions = [action.value for action in self.ale.getMinimalActionSet()]
        """The emulator's numbers of the actions that do something in this game."""
        legal = self.ale.getLegalActionSet() if settings.full_action_space else self.ale.getMinimalActionSet()
        self._actions = list(legal)
        self._noop = ale_py.Action.NOOP
        names = [action.name for action in self._actions]
        self._fire_actions = fire_actions(names) if settings.use_fire_reset else ()
        self.action_space = gym.spaces.Discrete(len(self._actions))
        self._detector = _object_detector(settings.game) if settings.obs_type == "objects" else None
        self.observation_space = self._space()

    def _load(self) -> None:
        self.ale.loadROM(self._path)
        for name, value, known, choose in (
            ("mode", self.settings.mode, self.ale.getAvailableModes(), self.ale.setMode),
            ("difficulty", self.settings.difficulty, self.ale.getAvailableDifficulties(), self.ale.setDifficulty),
        ):
            if value is None:
                continue
            if value not in known:
                raise ConfigError(f"{self.settings.game} has no {name} {value!r}; it has {sorted(known)}.")
            choose(value)

    @property
    def action_numbers(self) -> list[int]:
        """The emulator's number of each action of the space."""
        return [action.value for action in self._actions]

    @property
    def action_names(self) -> list[str]:
        """Each action in words: `noop`, `up right fire`."""
        return [" ".join(re.findall("NOOP|UP|DOWN|LEFT|RIGHT|FIRE", action.name)).lower() for action in self._actions]

    def _space(self) -> gym.Space:
        if self.settings.obs_type == "ram":
            return gym.spaces.Box(0, 255, (self.ale.getRAMSize(),), np.uint8)
        if self._detector is not None:
            return gym.spaces.Box(0.0, 255.0, (len(self._look()),), np.float32)
        height, width = self.ale.getScreenDims()
        return gym.spaces.Box(0, 255, (height, width) if self.settings.grayscale else (height, width, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; a seed decides sticky actions and the number of no-ops."""
        super().reset(seed=seed)
        if seed is not None:
            self.ale.setInt("random_seed", seed & 0x7FFFFFFF)
            # The emulator takes a seed only when it loads a game.
            self._load()
        self.ale.reset_game()
        if self.settings.noop_max:
            for _ in range(int(self.np_random.integers(1, self.settings.noop_max + 1))):
                self.ale.act(self._noop)
        if self._detector is not None:
            self.objects = self._detector.begin()
        observation = self._look()
        for action in self._fire_actions:
            observation, _ = self._act(action)
        self._first_frame = self.ale.getEpisodeFrameNumber()
        return observation, {"lives": self.ale.lives()}

    def frames_played(self) -> int:
        """Frames since the agent took over: a game that ends within a step skips no more of them."""
        played: int = self.ale.getEpisodeFrameNumber() - self._first_frame
        return played

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Hold the joystick for `frame_skip` frames; with `use_fire_reset`, a lost life is followed by the actions that serve the next ball."""
        ale = self.ale
        before = ale.lives()
        observation, reward = self._act(action)
        fresh = {}
        if self._fire_actions and life_lost(before, ale.lives()) and not ale.game_over():
            for pressed in (0, *self._fire_actions):
                observation, more = self._act(pressed)
                reward += more
            fresh = {FRESH_START: True}
        over = ale.game_over(with_truncation=False)
        return observation, reward, over, ale.game_truncated(), {"lives": ale.lives(), **fresh}

    def _act(self, action: Any) -> tuple[np.ndarray, float]:
        """Picture and reward of an action that is held for `frame_skip` frames."""
        ale, chosen, pooled = self.ale, self._actions[action], None
        reward, last = 0.0, self.settings.frame_skip - 1
        for frame in range(last + 1):
            reward += ale.act(chosen)
            if frame == last - 1 and self.settings.max_pool and self.settings.obs_type == "rgb":
                pooled = self._screen()
        observation = self._look()
        if pooled is not None:
            np.maximum(observation, pooled, out=observation)
        return observation, reward

    def _screen(self) -> np.ndarray:
        return self.ale.getScreenGrayscale() if self.settings.grayscale else self.ale.getScreenRGB()

    def _look(self) -> np.ndarray:
        if self.settings.obs_type == "rgb":
            return self._screen()
        if self._detector is None:
            return self.ale.getRAM()
        self.objects = self._detector.find(self.objects or self._detector.begin(), self.ale.getRAM())
        return np.array([number for found in self.objects for number in found._nsrepr], dtype=np.float32)

    def render(self) -> np.ndarray | None:
        """The screen in colour; a window shows it by itself."""
        return self.ale.getScreenRGB() if self.render_mode == "rgb_array" else None


class _ObjectDetector:
    """OCAtari's reading of the memory, without its environment: that also copies the screen at every step, and gives
    `terminated` and `truncated` in each other's place (2.2.1).
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def begin(self) -> list[Any]:
        return self._module._init_objects_ram(False)

    def find(self, objects: list[Any], ram: np.ndarray) -> list[Any]:
        for one in objects:
            if one:
                one._save_prev()
        # The formulas subtract offsets, for which bytes would wrap around.
        self._module._detect_objects_ram(objects, ram.astype(np.int64), False)
        return objects


def _object_detector(game: str) -> _ObjectDetector:
    games = require("ocatari.core", "obs_type: objects", "objects").AVAILABLE_GAMES
    if game not in games:
        raise ConfigError(f"OCAtari does not know the objects of {game}. It knows {', '.join(games)}.")
    return _ObjectDetector(require(f"ocatari.ram.{game.lower()}", "obs_type: objects", "objects"))
