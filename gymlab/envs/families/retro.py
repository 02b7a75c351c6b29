"""Games of old consoles through stable-retro: `Retro/<Game>`.

A process can hold one emulator, so training environments live in processes of their own and so does the single one that
evaluation uses. Emulators know no chance: a seed changes nothing and every episode begins alike, which also makes a
replay exact. `FrameSkipWrapper` with a range or `StickyActionsWrapper` bring chance in where it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.buttons import ButtonActions, ButtonSets
from gymlab.envs.families import Family, register_family, require
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, NotInstalled, did_you_mean

IMPORT_LINE = "python -m stable_retro.import <folder>"
"""Copies the ROMs of a folder that stable-retro recognises to where it looks for them."""
NATIVE_ACTIONS = {"discrete": "DISCRETE", "multi_discrete": "MULTI_DISCRETE", "multi_binary": "FILTERED", "all": "ALL"}
"""Ways to press buttons that the package has itself, by our name."""


class RetroGame(gym.Wrapper):
    """One emulator. The observation is the screen; `info` holds what the game's data file names (score, lives, ...).

    A step is one frame (60 a second). Actions by `actions`:
        multi_binary    each button on its own; what the console's pad cannot do (left and right) is dropped
        all             the same, with nothing dropped
        discrete        every combination that the game's file allows, as one Discrete
        multi_discrete  one choice in each group of buttons
        [[...], ...]    a Discrete over lists of button names
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 60}

    def __init__(
        self,
        game: str,
        *,
        actions: ButtonSets = "multi_binary",
        state: str | None = None,
        scenario: str | None = None,
        players: int = 1,
        render_mode: str | None = None,
    ) -> None:
        retro = stable_retro()
        native = NATIVE_ACTIONS.get(actions) if isinstance(actions, str) else "FILTERED"
        if native is None:
            raise ConfigError(
                f"env_kwargs.actions is {actions!r}. {did_you_mean(str(actions), NATIVE_ACTIONS)} "
                f"Expected {', '.join(NATIVE_ACTIONS)} or lists of button names."
            )
        emulator = retro.RetroEnv(
            game,
            retro.State.DEFAULT if state is None else state,
            scenario,
            use_restricted_actions=retro.Actions[native],
            players=players,
            inttype=retro.data.Integrations.ALL,
            render_mode=render_mode or "rgb_array",
        )
        super().__init__(emulator)
        self._emulator = emulator
        self._render_mode = render_mode
        # A pad has places without a button.
        names = [name or f"place {i}" for i, name in enumerate(emulator.buttons)]
        self.buttons = ButtonActions(names, "multi_binary" if isinstance(actions, str) else actions)
        """What the pad has, and what actions press where those are lists of ours."""
        self._presses = not isinstance(actions, str)
        if self._presses:
            self.action_space = self.buttons.space
        if not emulator.initial_state:
            # Without a saved state the package would go on where the last episode ended.
            emulator.initial_state = emulator.em.get_state()

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """As asked for; the package would open a window where nothing was."""
        return self._render_mode

    @property
    def action_names(self) -> list[str]:
        """Buttons that each action of a Discrete presses, in words."""
        if not isinstance(self.action_space, gym.spaces.Discrete):
            return []
        press = self.buttons.pressed if self._presses else self._emulator.get_action_meaning
        return [" and ".join(press(action)).lower() or "nothing" for action in range(int(self.action_space.n))]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode from the saved state; `info` as after a step."""
        observation, _ = self.env.reset(seed=seed, options=options)
        return observation, dict(self._emulator.data.lookup_all())

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Press buttons for one frame."""
        return self.env.step(self.buttons.switches(action) if self._presses else np.asarray(action))

    def render(self) -> Any:
        """The screen."""
        return None if self._render_mode is None else self.env.render()


def stable_retro() -> Any:
    """The package, or the pip line to run."""
    return require("stable_retro", "A Retro environment", "retro")


@cache
def known_games() -> tuple[str, ...]:
    """Every game that the package has data for, with its ROM or without."""
    data = stable_retro().data
    return tuple(sorted(data.list_games(inttype=data.Integrations.ALL)))


def has_rom(game: str) -> bool:
    """Whether the game can be played here."""
    data = stable_retro().data
    try:
        data.get_romfile_path(game, data.Integrations.ALL)
    except FileNotFoundError:
        return False
    return True


def _check_files(game: str, env_kwargs: dict[str, Any]) -> None:
    """A state or scenario must be one of the game's files, and nothing else on this machine."""
    data = stable_retro().data
    places = {"state": data.list_states, "scenario": data.list_scenarios}
    for name, listed in places.items():
        known = listed(game, data.Integrations.ALL)
        if name in env_kwargs and env_kwargs[name] not in known:
            given = str(env_kwargs[name])
            raise ConfigError(
                f"env_kwargs.{name} of Retro/{game} is {given!r}. {did_you_mean(given, known)} Known: {', '.join(known)}."
            )


class RetroFamily(Family):
    """`Retro/<Game>` with the game's name as stable-retro has it, `Airstriker-Genesis-v0`."""

    name: ClassVar[str] = "retro"
    prefixes: ClassVar[tuple[str, ...]] = ("Retro/",)
    one_a_process: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("actions", "state", "scenario", "players")
    own_files: ClassVar[str] = "states and scenarios of the game"

    def resolve(self, env_id: str) -> str:
        """A game that stable-retro knows; the version may be left out."""
        game = env_id.removeprefix("Retro/")
        games = known_games()
        found = next((name for name in (game, f"{game}-v0") if name in games), None)
        if found is None:
            raise EnvironmentFailure(
                f"Unknown game {env_id!r}. {did_you_mean(game, games)} stable-retro knows {len(games)} games; "
                "an id is Retro/ and the game's name, such as Retro/Airstriker-Genesis-v0."
            )
        return f"Retro/{found}"

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The config's arguments, if they are known ones."""
        for name in env_kwargs:
            if name not in self.options:
                hint = did_you_mean(name, self.options)
                raise ConfigError(
                    f"env_kwargs of {env_id}: unknown argument {name!r}. {hint} Known: {', '.join(self.options)}."
                )
        return dict(env_kwargs)

    def is_own_file(self, option: str, text: str) -> bool:
        """States and scenarios by name, such as GreenHillZone.Act1: `make` looks for them among the game's."""
        return option in ("state", "scenario")

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """Games have no threshold of their own and end by themselves."""
        return EnvironmentSpec(env_id)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One emulator, for which this process must hold no other."""
        game = env_id.removeprefix("Retro/")
        if not has_rom(game):
            raise NotInstalled(
                f"{env_id}: the game's ROM is not here, and it cannot be shipped. With a folder of your own ROMs, "
                f"run: {IMPORT_LINE}"
            )
        _check_files(game, env_kwargs)
        return RetroGame(game, **env_kwargs, render_mode=render_mode)

    def ids(self) -> Iterable[str]:
        """Games whose ROM is here."""
        return [f"Retro/{game}" for game in known_games() if has_rom(game)]


register_family(RetroFamily())
