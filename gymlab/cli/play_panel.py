"""What the window of `gymlab play` shows beside the picture: what happens, what the player thinks, and the keys."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pygame

from gymlab.envs.labels import short
from gymlab.metrics.statistics import format_number, reward_text

if TYPE_CHECKING:
    from gymlab.engine.playing import Playing

PANEL_WIDTH = 300
MOST_WIDTH, MOST_HEIGHT = 960, 720
"""A window that fits on a laptop's screen, without the panel."""
MARGIN = 16
BACKGROUND, TEXT, DIM, BAR, CHOSEN = "#171b21", "#e8ebef", "#8d98a5", "#3c4a5a", "#4aa3ff"
ENDINGS = {"terminated": "#ffb454", "truncated": "#b39ddb"}
MOST_BARS = 18


class Fonts:
    """DejaVu, which comes with matplotlib; pygame's own font where that is somewhere else."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("matplotlib")
        folder = Path(found.origin).parent / "mpl-data/fonts/ttf" if found is not None and found.origin else Path()
        plain, bold = folder / "DejaVuSans.ttf", folder / "DejaVuSans-Bold.ttf"
        has = plain.is_file() and bold.is_file()
        self.small = pygame.font.Font(plain if has else None, 12 if has else 17)
        self.text = pygame.font.Font(plain if has else None, 14 if has else 20)
        self.large = pygame.font.Font(bold if has else None, 20 if has else 28)


def scaled_size(width: int, height: int) -> tuple[int, int]:
    """The size a picture is shown in: pixel games several times larger in whole steps, large ones as they are or smaller."""
    factor = min(MOST_WIDTH / width, MOST_HEIGHT / height)
    if factor >= 1:
        factor = int(factor)
    return max(1, round(width * factor)), max(1, round(height * factor))


def scaled(frame: np.ndarray) -> pygame.Surface:
    """A picture [height, width, 3] as a surface of the size it is shown in: larger with sharp pixels, smaller smoothly."""
    height, width = frame.shape[:2]
    picture = pygame.image.frombuffer(frame[:, :, :3].tobytes(), (width, height), "RGB")
    size = scaled_size(width, height)
    if size == (width, height):
        return picture
    return pygame.transform.scale(picture, size) if size[0] > width else pygame.transform.smoothscale(picture, size)


def draw_panel(screen: pygame.Surface, area: pygame.Rect, game: Playing, fonts: Fonts, status: dict[str, Any]) -> None:
    """Counts and returns, then the action with value and probabilities, then how the window is."""
    pygame.draw.rect(screen, BACKGROUND, area)
    pen = _Pen(screen, area, fonts)
    pen.write(game.config.env_id, fonts.text, TEXT)
    pen.write(status["title"], fonts.small, DIM)
    if status["place"]:
        pen.write(status["place"], fonts.small, CHOSEN)
    pen.space(10)
    pen.pair("episode", f"{game.episode:,}")
    pen.pair("step", f"{game.steps:,}")
    pen.pair("reward", "-" if game.reward is None else reward_text(game.reward))
    pen.pair("return", reward_text(game.env_return), bold=True)
    decision = game.decision
    if decision is not None and decision.value is not None:
        pen.pair("value", format_number(decision.value))
    pen.space(10)
    action = decision.action if decision is not None else game.action
    if action is not None:
        pen.write("next action" if decision is not None else "action", fonts.small, DIM)
        _draw_action(pen, game, action, None if decision is None else decision.probabilities)
    if status["keys"]:
        pen.space(8)
        pen.pair("keys", " ".join(status["keys"]))
    _draw_foot(pen, game, status)


def _draw_action(pen: _Pen, game: Playing, action: Any, probabilities: np.ndarray | None) -> None:
    from gymlab.engine.playing import likeliest

    space = game.env.action_space
    if isinstance(space, gym.spaces.Box):
        low, high = (np.where(np.isfinite(b), b, e).ravel() for b, e in ((space.low, -1.0), (space.high, 1.0)))
        for index, value in enumerate(np.ravel(action)[:MOST_BARS]):
            share = (float(value) - low[index]) / max(float(high[index] - low[index]), 1e-9)
            pen.bar(short(game.labels[index]), share, f"{value:+.2f}", chosen=True)
        return
    pen.write(game.text_of(action), pen.fonts.text, CHOSEN)
    if probabilities is None or not isinstance(space, gym.spaces.Discrete):
        return
    pen.space(4)
    room = max(2, (pen.area.bottom - 76 - pen.y) // 24)
    for index, probability in likeliest(probabilities, min(room, MOST_BARS)):
        chosen = index == int(action) - int(space.start)
        pen.bar(game.labels[index], probability, f"{100 * probability:.1f}%", chosen=chosen)


def _draw_foot(pen: _Pen, game: Playing, status: dict[str, Any]) -> None:
    pen.y = pen.area.bottom - MARGIN - 42
    if game.ending is not None:
        pen.write(game.ending, pen.fonts.large, ENDINGS.get(game.ending, TEXT))
    else:
        pen.write(status["state"], pen.fonts.large, CHOSEN)
    pen.y = pen.area.bottom - MARGIN - 14
    pen.write(f"speed ×{status['speed']:g}    h: keys", pen.fonts.small, DIM)


def draw_help(screen: pygame.Surface, rows: list[tuple[str, str]], fonts: Fonts) -> None:
    """The keys, over everything else; in as many columns as it takes."""
    shade = pygame.Surface(screen.get_size(), pygame.SRCALPHA)
    shade.fill((10, 13, 17, 232))
    screen.blit(shade, (0, 0))
    width, height = screen.get_size()
    line = 24
    most = max(1, (height - 3 * MARGIN - line) // line)
    columns = -(-len(rows) // most)
    screen.blit(fonts.large.render("Keys", True, TEXT), (MARGIN, MARGIN))
    for index, (key, text) in enumerate(rows):
        column, row = divmod(index, most)
        left, top = MARGIN + column * (width // columns), 2 * MARGIN + line + row * line
        screen.blit(fonts.text.render(key, True, CHOSEN), (left, top))
        room = width // columns - 120 - MARGIN
        screen.blit(fonts.text.render(_fitting(text, fonts.text, room), True, TEXT), (left + 120, top))


class _Pen:
    """Writes from the top of an area downwards."""

    def __init__(self, screen: pygame.Surface, area: pygame.Rect, fonts: Fonts) -> None:
        self.screen = screen
        self.area = area
        self.fonts = fonts
        self.left, self.right = area.left + MARGIN, area.right - MARGIN
        self.y = area.top + MARGIN

    def space(self, pixels: int) -> None:
        self.y += pixels

    def write(self, text: str, font: pygame.font.Font, colour: str) -> None:
        text = _fitting(text, font, self.right - self.left)
        self.screen.blit(font.render(text, True, colour), (self.left, self.y))
        self.y += font.get_linesize() + 2

    def pair(self, name: str, value: str, *, bold: bool = False) -> None:
        font = self.fonts.large if bold else self.fonts.text
        shown = font.render(value, True, TEXT)
        self.screen.blit(self.fonts.small.render(name, True, DIM), (self.left, self.y + (6 if bold else 1)))
        self.screen.blit(shown, (self.right - shown.get_width(), self.y))
        self.y += font.get_linesize() + 3

    def bar(self, name: str, share: float, text: str, *, chosen: bool) -> None:
        """A name, a bar of its share, and a number."""
        font, height = self.fonts.small, 20
        track = pygame.Rect(self.left, self.y, self.right - self.left, height)
        pygame.draw.rect(self.screen, "#20262e", track, border_radius=3)
        filled = track.copy()
        filled.width = round(track.width * min(1.0, max(0.0, share)))
        pygame.draw.rect(self.screen, "#1f5f9e" if chosen else BAR, filled, border_radius=3)
        number = font.render(text, True, TEXT)
        room = track.width - number.get_width() - 20
        self.screen.blit(font.render(_fitting(name, font, room), True, TEXT), (track.left + 6, self.y + 2))
        self.screen.blit(number, (track.right - number.get_width() - 6, self.y + 2))
        self.y += height + 4


def _fitting(text: str, font: pygame.font.Font, room: int) -> str:
    """A text cut to the room there is."""
    if font.size(text)[0] <= room:
        return text
    while text and font.size(text + "…")[0] > room:
        text = text[:-1]
    return text + "…"
