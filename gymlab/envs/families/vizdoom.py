"""Doom scenarios through ViZDoom: `VizDoom-<Scenario>-v0`.

An environment of our own around `DoomGame` rather than the package's: that one shows a black screen where an episode was
cut off, from which nothing can be bootstrapped, keeps the game's variables out of `info`, and calls a time limit a
termination.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.buttons import ButtonActions, ButtonSets
from gymlab.envs.families import Family, register_family, require
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, NotInstalled, did_you_mean

SCENARIOS_DIR = "VIZDOOM_SCENARIOS_DIR"
"""Environment variable: a folder whose .cfg and .wad files are taken before those of the package."""


@dataclass(frozen=True)
class Scenario:
    """What is known about one of the scenarios."""

    threshold: float | None = None
    has_goal: bool = False
    """Whether an episode that ends with a reward and the player alive has reached what it was for."""
    fallback: str = ""
    """Config of the package to use where there is none of the scenario's own name."""
    doom_map: str = ""
    """Map to play, where the config does not say."""


SCENARIOS = {
    "Basic": Scenario(80.0, has_goal=True),
    "DeadlyCorridor": Scenario(has_goal=True),
    "Deathmatch": Scenario(10.0),
    "DefendTheCenter": Scenario(15.0),
    "DefendTheLine": Scenario(),
    # The first map of Doom itself, or of Freedoom, which comes with the package.
    "E1M1": Scenario(has_goal=True, fallback="freedoom1", doom_map="E1M1"),
    "HealthGathering": Scenario(),
    "MyWayHome": Scenario(0.5, has_goal=True),
    "PredictPosition": Scenario(0.5, has_goal=True),
    "TakeCover": Scenario(750.0),
}
"""The scenarios that have a name here; others work by a file in the folder of scenarios or `config_path`."""

REWARDS = (
    *("living_reward", "death_penalty", "map_exit_reward", "kill_reward", "secret_reward", "item_reward"),
    *("frag_reward", "hit_reward", "hit_taken_penalty", "damage_made_reward", "damage_taken_penalty"),
    *("health_reward", "armor_reward"),
)
DRAWN = ("hud", "weapon", "crosshair", "decals", "particles", "messages", "corpses", "screen_flashes")
SETTINGS: dict[str, type] = {
    **dict.fromkeys(REWARDS, float),
    "doom_skill": int,
    "doom_map": str,
    "episode_start_time": int,
    **{f"render_{name}": bool for name in DRAWN},
}
"""Settings of the game that env_kwargs may change, and what they are; none of them names a file or a program."""
MOST = 2**31 - 1
"""A number that the game can take, which counts in 32 bits."""
EXPECTED = {float: "a number", int: "a whole number", str: "a name", bool: "true or false"}
GAME_VARIABLE = (
    r"((sv|cl|r|am|vid|snd|viz)_\w+|timelimit|fraglimit|deathmatch|teamplay|skill|dmflags2?|compatflags|colorset)"
)
"""Names of what scenarios set in the game's console. Others could be its commands, which read and write files."""
GAME_ARGUMENTS = re.compile(rf"(\+{GAME_VARIABLE} -?\d+(\.\d+)?( |$))*", re.ASCII | re.IGNORECASE)
"""Arguments that a scenario's file may give the program: variables of the game and their numbers, `+sv_noautoaim 1`."""
VARIABLES = {"health": "HEALTH", "ammo": "SELECTED_WEAPON_AMMO", "weapon": "SELECTED_WEAPON", "kills": "KILLCOUNT"}
"""Game variables that `info` tells in every scenario, beside those that its config lists."""


class VizDoomEnv(gym.Env):
    """One game. The observation is the screen, [height, width, 3]; `info` holds the game's variables.

    A step is one tic (35 a second). Actions press buttons in one of the ways of `ButtonActions`; those that take a number
    (the `*_DELTA` ones) are left alone. With `game_variables` the observation is a dict of `screen` and
    `game_variables`, to be used with `obs_type: vector`.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 35}

    def __init__(
        self,
        config_path: Path,
        *,
        actions: ButtonSets = "discrete",
        max_buttons: int = 2,
        game_variables: bool = False,
        screen_resolution: str | None = None,
        settings: dict[str, Any] | None = None,
        has_goal: bool = False,
        doom_map: str = "",
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._game = game = load_game(config_path, settings)
        if doom_map and "doom_map" not in (settings or {}):
            game.set_doom_map(doom_map)
        if screen_resolution is not None:
            game.set_screen_resolution(_resolution(screen_resolution))
        game.set_window_visible(render_mode == "human")
        # The limit of the config is applied above, where the last screen can still be seen.
        game.set_episode_timeout(0)
        self._has_goal = has_goal
        self._tells = _variables(game)
        self._listed = [variable.name.lower() for variable in game.get_available_game_variables()]
        names = [button.name for button in game.get_available_buttons()]
        self.buttons = ButtonActions([name for name in names if not name.endswith("_DELTA")], actions, max_buttons)
        """What actions press."""
        self.action_space = self.buttons.space
        self._places = [names.index(name) for name in self.buttons.names]
        self._count = len(names)
        shape = (game.get_screen_height(), game.get_screen_width(), 3)
        self._screen = np.zeros(shape, dtype=np.uint8)
        self._with_variables = game_variables
        self.observation_space: gym.Space = gym.spaces.Box(0, 255, shape, np.uint8)
        if game_variables:
            listed = gym.spaces.Box(-np.inf, np.inf, (len(self._listed),), np.float32)
            self.observation_space = gym.spaces.Dict({"game_variables": listed, "screen": self.observation_space})
        self.pressed: list[str] = []
        """Buttons that the newest step pressed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the game's own generator is seeded each time."""
        super().reset(seed=seed)
        self._game.set_seed(int(self.np_random.integers(0, 2**32, dtype=np.uint32)))
        if self._game.is_running():
            self._game.new_episode()
        else:
            self._start()
        return self._look(), self._info(won=False)

    def _start(self) -> None:
        """Start the program, in a folder that is gone at once: it would leave files wherever it runs."""
        package = vizdoom()
        try:
            with tempfile.TemporaryDirectory(prefix="gymlab-vizdoom-") as folder, contextlib.chdir(folder):
                self._game.init()
        except package.FileDoesNotExistException as error:
            raise EnvironmentFailure(
                f"ViZDoom cannot start: {str(error).rstrip('.')}. A scenario's .wad lies beside its .cfg: in the package, "
                f"in ${SCENARIOS_DIR} or where env_kwargs.config_path points."
            ) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Press buttons for one tic."""
        observation, reward, terminated, truncated, info, _ = self.repeat(action, 1)
        return observation, reward, terminated, truncated, info

    def repeat(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any], int]:
        """Press buttons for `count` tics, of which only the last is drawn; ends with the number of tics played."""
        game = self._game
        # Plain floats: the game takes lists quickest.
        buttons = [0.0] * self._count
        for place, on in zip(self._places, self.buttons.switches(action), strict=True):
            buttons[place] = float(on)
        self.pressed = self.buttons.pressed(action)
        before = game.get_episode_time()
        reward = float(game.make_action(buttons, count))
        finished = game.is_episode_finished()
        played = max(1, min(count, game.get_episode_time() - before))
        return self._look(), reward, finished, False, self._info(finished and reward > 0), played

    def _look(self) -> Any:
        """The newest screen; a game that is over shows none, so the last one stays."""
        state = self._game.get_state()
        if state is not None:
            self._screen = state.screen_buffer
        if not self._with_variables:
            return self._screen
        values = [self._game.get_game_variable(self._tells[name]) for name in self._listed]
        return {"game_variables": np.array(values, dtype=np.float32), "screen": self._screen}

    def _info(self, won: bool) -> dict[str, Any]:
        game = self._game
        info: dict[str, Any] = {name: game.get_game_variable(variable) for name, variable in self._tells.items()}
        if self._has_goal:
            info["is_success"] = won and not game.is_player_dead()
        return info

    def render(self) -> Any:
        """The screen."""
        return self._screen.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """End the program."""
        self._game.close()


def vizdoom() -> Any:
    """The package, or the pip line to run."""
    return require("vizdoom", "A VizDoom environment", "vizdoom")


def load_game(config_path: Path, settings: Any) -> Any:
    """A game that was told its config and settings, and not started."""
    package = vizdoom()
    game = package.DoomGame()
    try:
        game.load_config(str(config_path))
    except (package.FileDoesNotExistException, RuntimeError) as error:
        raise EnvironmentFailure(f"ViZDoom cannot read {config_path}: {error}") from error
    # A file may say which program is the game, where its .ini is written, and what its console does at the start.
    game.set_vizdoom_path(package.exe_path)
    game.set_doom_config_path(os.devnull)
    _check_wads(game, config_path)
    arguments = game.get_game_args()
    if not GAME_ARGUMENTS.fullmatch(" ".join(arguments.split())):
        names = re.findall(r"\+(\w+)", arguments, re.ASCII)
        unknown = [name for name in names if not re.fullmatch(GAME_VARIABLE, name, re.ASCII | re.IGNORECASE)]
        told = f" {', '.join(unknown)} is none that is known here." if unknown else ""
        raise ConfigError(
            f"{config_path}: game_args is {arguments!r}; expected variables of the game with a number each, such as "
            f"+sv_noautoaim 1.{told} Commands of the console could read and write files."
        )
    game.set_screen_format(package.ScreenFormat.RGB24)
    game.set_sound_enabled(False)
    game.set_audio_buffer_enabled(False)
    game.set_automap_buffer_enabled(False)
    for name, value in checked_settings(settings).items():
        getattr(game, f"set_{name}")(value)
    if not re.fullmatch(r"\w+", game.get_doom_map(), re.ASCII):
        # What stands behind a semicolon is a command of the game's console.
        raise ConfigError(
            f"doom_map is {game.get_doom_map()!r}; expected a name such as map01 or E1M1 (env_kwargs.settings or {config_path})."
        )
    return game


def checked_settings(settings: Any) -> dict[str, Any]:
    """Settings of the game by name; an error that names the one that is unknown or of another type."""
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(f"env_kwargs.settings is {settings!r}; expected names and values, such as {{doom_skill: 3}}.")
    for name, value in settings.items():
        if name not in SETTINGS:
            raise ConfigError(
                f"env_kwargs.settings has {name!r}. {did_you_mean(str(name), SETTINGS)} Known: {', '.join(SETTINGS)}."
            )
        if not _is_setting(value, SETTINGS[name]):
            raise ConfigError(f"env_kwargs.settings.{name} is {value!r}; expected {EXPECTED[SETTINGS[name]]}.")
    return settings


def _is_setting(value: Any, kind: type) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) <= MOST
    return type(value) is kind and (type(value) is not int or 0 <= value <= MOST)


def _check_wads(game: Any, config_path: Path) -> None:
    """The game's data lies in the package, in the user's folder of scenarios or beside the config."""
    folders = [Path(vizdoom().root_path), config_path.parent, *_own_folder()]
    for name in ("doom_game_path", "doom_scenario_path"):
        path = getattr(game, f"get_{name}")()
        # The game adds the ending where there is none.
        files = [Path(path).resolve(), Path(f"{path}.wad").resolve()] if path else []
        if not all(any(file.is_relative_to(folder.resolve()) for folder in folders) for file in files):
            raise ConfigError(
                f"{config_path}: {name} is {path}, which lies neither beside this file nor in ${SCENARIOS_DIR} nor in the "
                "package of ViZDoom. Copy it there."
            )


def _variables(game: Any) -> dict[str, Any]:
    package = vizdoom()
    always = {name: getattr(package.GameVariable, variable) for name, variable in VARIABLES.items()}
    return always | {variable.name.lower(): variable for variable in game.get_available_game_variables()}


def _resolution(text: str) -> Any:
    known = vizdoom().ScreenResolution
    found = known.__members__.get(f"RES_{str(text).upper()}")
    if found is None:
        names = [name.removeprefix("RES_").lower() for name in known.__members__]
        raise ConfigError(
            f"env_kwargs.screen_resolution is {text!r}. {did_you_mean(str(text), names)} Known: {', '.join(names)}."
        )
    return found


def snake_case(name: str) -> str:
    """`DefendTheCenter` as the scenario's files are called: `defend_the_center`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class VizDoomFamily(Family):
    """`VizDoom-<Scenario>-v0`: the ten scenarios by name, others by their file."""

    name: ClassVar[str] = "vizdoom"
    prefixes: ClassVar[tuple[str, ...]] = ("VizDoom-",)
    options: ClassVar[tuple[str, ...]] = (
        *("config_path", "scenario", "actions", "max_buttons", "game_variables", "screen_resolution", "settings"),
    )
    own_files: ClassVar[str] = f"scenarios of the vizdoom package and of ${SCENARIOS_DIR}"

    def resolve(self, env_id: str) -> str:
        """A scenario that is known by name, or that has a file in the user's folder of scenarios."""
        match = re.fullmatch(r"VizDoom-(\w+)-v0", env_id)
        if match is not None and (match[1] in SCENARIOS or _own_file(match[1]) is not None):
            return env_id
        known = [f"VizDoom-{name}-v0" for name in SCENARIOS]
        raise EnvironmentFailure(
            f"Unknown scenario {env_id!r}. {did_you_mean(env_id, known)} Known: {', '.join(SCENARIOS)}. "
            f"One of your own is found as <scenario>.cfg in ${SCENARIOS_DIR}, its name in snake case."
        )

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The config's arguments, with the scenario's file among them."""
        for name in env_kwargs:
            if name not in self.options:
                hint = did_you_mean(name, self.options)
                raise ConfigError(
                    f"env_kwargs of {env_id}: unknown argument {name!r}. {hint} Known: {', '.join(self.options)}."
                )
        named = {name: value for name, value in env_kwargs.items() if name != "scenario"}
        return {**named, "config_path": _config_path(env_id, env_kwargs.get("config_path"), env_kwargs.get("scenario"))}

    def is_own_file(self, option: str, text: str) -> bool:
        """A scenario of the package, or one that lies in the user's folder itself."""
        path = Path(os.path.expanduser(text)).resolve()
        in_package = path.is_relative_to(Path(vizdoom().scenarios_path).resolve())
        return option == "config_path" and (in_package or any(path.parent == one.resolve() for one in _own_folder()))

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """The scenario's threshold, and the time limit of its config in tics."""
        game = load_game(env_kwargs["config_path"], env_kwargs.get("settings"))
        limit = game.get_episode_timeout()
        return EnvironmentSpec(env_id, _scenario(env_id).threshold, limit or None)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One game; the program starts with the first reset."""
        scenario = _scenario(env_id)
        return VizDoomEnv(**env_kwargs, has_goal=scenario.has_goal, doom_map=scenario.doom_map, render_mode=render_mode)

    def ids(self) -> Iterable[str]:
        """The scenarios by name."""
        return [f"VizDoom-{name}-v0" for name in SCENARIOS]


def _scenario(env_id: str) -> Scenario:
    return SCENARIOS.get(_scenario_name(env_id), Scenario())


def _scenario_name(env_id: str) -> str:
    return env_id.removeprefix("VizDoom-").removesuffix("-v0")


def _own_folder() -> list[Path]:
    """The user's folder of scenarios, if there is one."""
    folder = os.environ.get(SCENARIOS_DIR)
    return [Path(folder)] if folder else []


def _own_file(name: str) -> Path | None:
    paths = [folder / f"{snake_case(name)}.cfg" for folder in _own_folder()]
    return next((path for path in paths if path.is_file()), None)


def _config_path(env_id: str, given: str | None, scenario: str | None = None) -> Path:
    """The scenario's file: as given, or the one of the `scenario` that is named, else of the id's: from the user's folder, or from the package."""
    if given is not None:
        path = Path(os.path.expanduser(given)).resolve() if isinstance(given, str) else None
        if path is None or not path.is_file():
            raise ConfigError(f"env_kwargs.config_path of {env_id}: there is no file {given}.")
        return path
    name = _scenario_name(env_id)
    if scenario is not None and (not isinstance(scenario, str) or re.fullmatch(r"\w+", scenario) is None):
        raise ConfigError(
            f"env_kwargs.scenario of {env_id} is {scenario!r}; expected a scenario's name, such as basic."
        )
    if scenario is not None and scenario.lower() not in (name.lower(), snake_case(name)):
        return _scenario_file(env_id, scenario)
    own = _own_file(name)
    if own is not None:
        return own.resolve()
    folder = Path(vizdoom().scenarios_path)
    for stem in (snake_case(name), _scenario(env_id).fallback):
        if stem and (folder / f"{stem}.cfg").is_file():
            return folder / f"{stem}.cfg"
    raise NotInstalled(
        f"{env_id}: the installed vizdoom has no {snake_case(name)}.cfg. "
        f"Put it with its .wad in a folder and set {SCENARIOS_DIR}, or give env_kwargs.config_path."
    )


def _scenario_file(env_id: str, scenario: str) -> Path:
    """The file of another scenario than the id's."""
    folders = [*_own_folder(), Path(vizdoom().scenarios_path)]
    for stem in (scenario, snake_case(scenario)):
        for folder in folders:
            if (folder / f"{stem}.cfg").is_file():
                return (folder / f"{stem}.cfg").resolve()
    known = sorted({path.stem for folder in folders for path in folder.glob("*.cfg")})
    raise ConfigError(
        f"env_kwargs.scenario of {env_id}: there is no {snake_case(scenario)}.cfg. {did_you_mean(scenario, known)} Known: "
        f"{', '.join(known)}. One of your own lies with its .wad in a folder that {SCENARIOS_DIR} names."
    )


register_family(VizDoomFamily())
