"""The window of `gymlab play`: the environment's picture, a panel beside it, and keys."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import pygame

from gymlab.cli.play_panel import PANEL_WIDTH, Fonts, draw_help, draw_panel, scaled
from gymlab.engine.recorded_game import RecordedGame
from gymlab.envs.keys import Controls, controls_of
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.playing import Playing
    from gymlab.metrics.video import VideoWriter

COMMANDS = {
    "pause": (("space", "p"), "pause, go on"),
    "step": (("n", "right", "."), "pause, then one step at a time"),
    "restart": (("r", "backspace"), "next episode"),
    "faster": (("+", "="), "faster"),
    "slower": (("-",), "slower"),
    "overlay": (("o",), "panel on, off"),
    "help": (("h",), "keys on, off"),
    "quit": (("q", "escape"), "quit"),
}
"""What the window's own keys do. A key that plays the game is not the window's."""
BROWSING = {
    "back": (("left", "b"), "pause, then one step back"),
    "previous": (("up", "e"), "previous episode"),
    "split": (("t", "tab"), "from train to test episodes, and back"),
}
"""Further keys, where recorded episodes are browsed."""

SPEEDS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
UNSEEN = ("dummy", "offscreen")
"""Drivers that SDL takes by itself where it finds no screen."""
FRAMES_PER_SECOND = 60
END_SECONDS = 1.2
"""How long the end of an episode is looked at."""
REPEAT_MILLISECONDS = (350, 120)
"""How long a key is held before it counts again and again, where each press is a step."""


def require_display() -> None:
    """An error where there is no screen to open a window on."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("SDL_VIDEODRIVER")
    ):
        raise no_display("neither DISPLAY nor WAYLAND_DISPLAY is set")


def no_display(cause: object) -> GymlabError:
    """What can be done without a screen."""
    return GymlabError(
        f"There is no display to open a window on ({cause}). "
        "--headless plays without one and prints a table, --save writes a video."
    )


def commands(browses: bool) -> dict[str, tuple[tuple[str, ...], str]]:
    """What the window's keys do."""
    return {**COMMANDS, **BROWSING} if browses else COMMANDS


def command_rows(controls: Controls | None, *, browses: bool = False) -> list[tuple[str, str]]:
    """The window's keys that the game leaves to it, and what they do."""
    taken = controls.keys if controls is not None else frozenset()
    return [(" ".join(key for key in keys if key not in taken), text) for keys, text in commands(browses).values()]


class PlayWindow:
    """Shows a game until its episodes are over or somebody quits; use it as a context manager."""

    def __init__(
        self, game: Playing, fps: float, *, title: str, film: VideoWriter | None = None, header: bool = True
    ) -> None:
        """Show a game at `fps` steps a second; without `header` the panel is there when it is asked for."""
        self.game = game
        self.fps = fps
        self.title = title
        self.film = film
        self.controls: Controls | None = None
        if game.by_hand:
            self.controls = controls_of(game.env.action_space, game.labels, game.config.env_id)
        taken = self.controls.keys if self.controls is not None else frozenset()
        known = commands(game.browses).items()
        self._commands = {key: name for name, (keys, _) in known for key in keys if key not in taken}
        self.overlay, self.help, self.paused, self.speed = header, False, False, SPEEDS.index(1.0)
        self._held: set[str] = set()
        self._tapped: set[str] = set()
        self._quit = self._step_wanted = False
        self._frame: pygame.Surface | None = None
        self._caption = ""

    def __enter__(self) -> PlayWindow:
        try:
            pygame.display.init()
            pygame.font.init()
        except pygame.error as error:
            raise no_display(error) from error
        if pygame.display.get_driver() in UNSEEN and not os.environ.get("SDL_VIDEODRIVER"):
            raise no_display(f"DISPLAY={os.environ.get('DISPLAY', '')} cannot be reached")
        if self.controls is not None and self.controls.waits:
            pygame.key.set_repeat(*REPEAT_MILLISECONDS)
        self._fonts = Fonts()
        return self

    def __exit__(self, *exception: object) -> None:
        # Environments draw with pygame too and close what they have opened themselves.
        pygame.display.quit()

    def play(self, episodes: int | None, *, paused: bool = False) -> None:
        """Play until so many episodes are over, or until somebody quits."""
        self.paused = paused
        clock = pygame.time.Clock()
        self._begin()
        while not self._quit:
            self._take_events()
            if self.game.ending is None:
                self._take_steps()
            elif time.monotonic() >= self._looked_at or self._step_wanted:
                over = episodes is not None and len(self.game.finished) >= episodes
                self._quit = over
                if not over and (not self.paused or self._step_wanted):
                    self._begin()
            self._draw()
            clock.tick(FRAMES_PER_SECOND)
        self.game.leave()

    def _begin(self) -> None:
        self.game.begin()
        self._step_wanted = False
        self._tapped.clear()
        self._look()
        self._next_step = time.monotonic() + 1.0 / (self.fps * SPEEDS[self.speed])

    def _look(self) -> None:
        """Take a picture of the environment, for the window and for the film."""
        frame = self.game.frame()
        if self.film is not None:
            self.film.add(frame)
        self._frame = scaled(frame)

    def _take_events(self) -> None:
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self._quit = True
            elif event.type == pygame.KEYDOWN:
                self._press(_name(event))
            elif event.type == pygame.KEYUP:
                self._held.discard(_name(event))
            elif event.type == pygame.WINDOWFOCUSLOST:
                self._held.clear()

    def _press(self, key: str) -> None:
        if self.controls is not None and key in self.controls.keys:
            self._held.add(key)
            self._tapped.add(key)
            return
        match self._commands.get(key):
            case "pause":
                self.paused = not self.paused
                self._next_step = time.monotonic()
            case "step":
                self.paused = self._step_wanted = True
            case "restart":
                self._begin()
            case "faster":
                self.speed = min(self.speed + 1, len(SPEEDS) - 1)
            case "slower":
                self.speed = max(self.speed - 1, 0)
            case "overlay":
                self.overlay = not self.overlay
            case "help":
                self.help = not self.help
            case "quit":
                self._quit = True
            case "back" | "previous" | "split" as wish:
                self._browse(wish)

    def _browse(self, wish: str) -> None:
        game = self.game
        assert isinstance(game, RecordedGame)
        if wish == "back":
            self.paused = True
            game.go(game.steps - 1)
        elif wish == "previous":
            game.choose(game.episode - 2)
        else:
            game.choose_split()
        self._look()

    def _take_steps(self) -> None:
        """The steps that are due since the last look, or the one that was asked for."""
        if self.controls is not None and self.controls.waits and not self.paused:
            self._step()
            return
        if self.paused:
            if self._step_wanted:
                self._step_wanted = False
                self._step()
            return
        wait, begun = 1.0 / (self.fps * SPEEDS[self.speed]), time.monotonic()
        while (now := time.monotonic()) >= self._next_step and self.game.ending is None:
            self._step()
            self._next_step += wait
            if now - begun > 1.0 / FRAMES_PER_SECOND:
                # What a slow environment cannot catch up with is let go: keys come first.
                self._next_step = max(self._next_step, now)
                return

    def _step(self) -> None:
        game, action = self.game, None
        if self.controls is not None:
            pressed = self._tapped if self.controls.waits and not self.paused else self._tapped | self._held
            action = self.controls.action(frozenset(pressed), game.action)
            self._tapped.clear()
            if action is None:
                return
        game.step(action)
        self._look()
        if game.ending is not None:
            self._looked_at = time.monotonic() + END_SECONDS

    def _draw(self) -> None:
        assert self._frame is not None
        width, height = self._frame.get_size()
        least = 420 if self.overlay or self.help else 0
        size = (width + (PANEL_WIDTH if self.overlay else 0), max(height, least))
        screen = _window(size)
        screen.fill("#0f1216")
        screen.blit(self._frame, (0, (size[1] - height) // 2))
        if self.overlay:
            draw_panel(screen, pygame.Rect(width, 0, PANEL_WIDTH, size[1]), self.game, self._fonts, self._status())
        if self.help:
            own = [] if self.controls is None else self.controls.table
            rows = [*own, *command_rows(self.controls, browses=self.game.browses)]
            draw_help(screen, rows, self._fonts)
        self._set_caption()
        pygame.display.flip()

    def _set_caption(self) -> None:
        """Say in the window's title where the game is; asked for only when it has changed."""
        game = self.game
        parts = [
            game.config.env_id,
            *filter(None, (self.title, game.place)),
            f"episode {game.episode}, step {game.steps}",
        ]
        caption = " · ".join([*parts, game.ending or ("paused" if self.paused else "")]).removesuffix(" · ")
        if caption != self._caption:
            self._caption = caption
            pygame.display.set_caption(caption)

    def _status(self) -> dict[str, Any]:
        waiting = self.controls is not None and self.controls.waits and not self.paused
        return {
            "title": self.title,
            "place": self.game.place,
            "state": "paused" if self.paused else "your turn" if waiting else "",
            "speed": SPEEDS[self.speed],
            "keys": sorted(self._held),
        }


def _window(size: tuple[int, int]) -> pygame.Surface:
    """The window in this size; it is opened when there is something to show, so that it stands in the middle."""
    screen = pygame.display.get_surface()
    if screen is not None and screen.get_size() == size:
        return screen
    try:
        return pygame.display.set_mode(size)
    except pygame.error as error:
        raise no_display(error) from error


def _name(event: pygame.event.Event) -> str:
    """Name of a key; those of the number pad are the same as the others."""
    return pygame.key.name(event.key).strip("[]") or ""
