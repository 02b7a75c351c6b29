"""CarRacing with the same pictures in a third of the time, and none where nobody looks: they take 99% of a step."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, cast

import gymnasium as gym
import numpy as np


class QuickCarRacing(gym.Wrapper):
    """Draws what CarRacing draws, pixel for pixel, and offers `repeat`, which draws the last picture only."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.race = cast(Any, env.unwrapped)
        self.drawn = True
        """Whether the next picture is drawn; else it is the one before."""
        self.road: list[Any] | None = None
        """The road that `corners` are of: each track has a list of its own."""
        self.corners = grass()
        """Of patches of grass, then of the road [P, 4, 2]."""
        self.surfaces: list[Any] = []
        """What is drawn on, and the same upside down: fresh ones would cost a third of a picture."""
        self.race._render, self.race._render_road = self._render, self._render_road

    def repeat(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any], int]:
        """Take an action `count` times or until the episode ends; ends with the number of steps taken."""
        total, taken, over = 0.0, 0, False
        while taken < count and not over:
            self.drawn = taken == count - 1 or self.render_mode == "human"
            try:
                observation, reward, terminated, truncated, info = self.env.step(action)
            finally:
                drawn, self.drawn = self.drawn, True
            total, taken, over = total + float(reward), taken + 1, terminated or truncated
        if not drawn:
            observation = self.race.state = self._render("state_pixels")
        return observation, total, terminated, truncated, info, taken

    def _render(self, mode: str) -> Any:
        """What the environment asks itself for: the agent's picture is drawn here, films and windows by the environment."""
        from gymnasium.envs.box2d import car_racing as original

        race = self.race
        if not self.drawn:
            return race.state
        if mode != "state_pixels" or "t" not in race.__dict__:
            return type(race)._render(race, mode)
        import pygame

        width, height = original.WINDOW_W, original.WINDOW_H
        self.surfaces = self.surfaces or [pygame.Surface((width, height)) for _ in range(2)]
        race.surf, upright = self.surfaces
        angle, (x, y) = -race.car.hull.angle, race.car.hull.position
        # The first second draws near.
        zoom = 0.1 * original.SCALE * max(1 - race.t, 0) + original.ZOOM * original.SCALE * min(race.t, 1)
        across, up = pygame.math.Vector2((-x * zoom, -y * zoom)).rotate_rad(angle)
        shift = (width / 2 + across, height / 4 + up)
        self._render_road(zoom, shift, angle)
        race.car.draw(race.surf, zoom, shift, angle, False)
        pygame.surfarray.pixels2d(upright)[:] = pygame.surfarray.pixels2d(race.surf)[:, ::-1]
        race.surf = upright
        race._render_indicators(width, height)
        text = label(f"{race.reward:04.0f}")
        race.surf.blit(text, text.get_rect(center=(60, height - height * 2.5 / 40.0)))
        return race._create_image_array(race.surf, (original.STATE_W, original.STATE_H))

    def _render_road(self, zoom: float, shift: tuple[float, float], angle: float) -> None:
        """Field, grass and road: all corners are moved at once, and shapes beyond the window are left out."""
        import pygame
        from gymnasium.envs.box2d import car_racing as original
        from pygame import gfxdraw

        race = self.race
        if self.road is not race.road_poly:
            self.road = race.road_poly
            self.corners = np.concatenate([grass(), np.array([poly for poly, _ in self.road], np.float64)])
        cos, sin = pygame.math.Vector2(1, 0).rotate_rad(angle)
        x, y = self.corners[..., 0], self.corners[..., 1]
        across, up = (cos * x - sin * y) * zoom + shift[0], (sin * x + cos * y) * zoom + shift[1]

        # Around the car, no part of the window is farther away than its diagonal.
        width, height, edge = original.WINDOW_W, original.WINDOW_H, original.PLAYFIELD
        reach = max(map(abs, race.car.hull.position)) + float(np.hypot(width, height)) / zoom
        if reach < edge:
            race.surf.fill(race.bg_color)
        else:
            race.surf.fill((0, 0, 0))
            field = [(edge, edge), (edge, -edge), (-edge, -edge), (-edge, edge)]
            race._draw_colored_polygon(race.surf, field, race.bg_color, zoom, shift, angle, clip=False)

        far = original.MAX_SHAPE_DIM
        near = (across >= -far) & (across <= width + far) & (up >= -far) & (up <= height + far)
        seen = np.flatnonzero(near.any(1) & overlaps(across, width) & overlaps(up, height))
        shapes = np.stack([across[seen], up[seen]], axis=-1).tolist()
        for index, shape in zip((seen - len(grass())).tolist(), shapes, strict=True):
            # Tiles change their colour when they are visited.
            color = race.grass_color if index < 0 else [int(part) for part in self.road[index][1]]
            gfxdraw.aapolygon(race.surf, shape, color)
            gfxdraw.filled_polygon(race.surf, shape, color)


def overlaps(corners: np.ndarray, size: int) -> np.ndarray:
    """Which shapes [P, 4] reach into 0..size, a pixel of their edge included."""
    lowest, highest = corners.min(1), corners.max(1)
    return (highest >= -2) & (lowest <= size + 2)


@cache
def grass() -> np.ndarray:
    """Corners of the patches of another green [400, 4, 2]."""
    from gymnasium.envs.box2d.car_racing import GRASS_DIM

    patch = np.array([(1, 0), (0, 0), (0, 1), (1, 1)], np.float64)
    places = np.array([(x, y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)], np.float64)
    return GRASS_DIM * places[:, None] + GRASS_DIM * patch


@lru_cache(maxsize=32)
def label(text: str) -> Any:
    """The return so far, white on black."""
    import pygame

    pygame.font.init()
    font = pygame.font.Font(pygame.font.get_default_font(), 42)
    return font.render(text, True, (255, 255, 255), (0, 0, 0))
