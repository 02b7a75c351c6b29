"""Observations as pictures: an image as it is, a state that its environment can draw by that, and any other vector as lines over time.

What is dreamt or was recorded has no environment behind it that could be rendered, only observations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from PIL import Image, ImageDraw, ImageFont

from gymlab.envs.spaces import leaves
from gymlab.envs.vector import is_image_space

Painter = Callable[[Sequence[np.ndarray]], np.ndarray]
"""Observations of an episode so far, the newest last -> a picture [height, width, 3] of the newest, in bytes."""

SHOWN_PIXELS = 384
"""Small images are enlarged, in whole steps, to at most this width and height."""
COLOURS = (1, 3, 4)
MOST_LINES = 12
"""Entries of a vector that are drawn."""
CHART_WIDTH, NAME_WIDTH, VALUE_WIDTH, MARGIN = 480, 132, 64, 12
SHOWN_STEPS = 120
BACKGROUND, TRACK, LINE, TEXT, DIM = "#171b21", "#20262e", "#4aa3ff", "#e8ebef", "#8d98a5"

POSES: dict[str, Callable[[Any, np.ndarray], None]] = {}
"""How an observation is put into the environment that draws it, by the class of the environment."""


def pose(*names: str) -> Callable[[Callable[[Any, np.ndarray], None]], Callable[[Any, np.ndarray], None]]:
    """Register a function that puts an observation into environments of these classes."""

    def register(put: Callable[[Any, np.ndarray], None]) -> Callable[[Any, np.ndarray], None]:
        POSES.update(dict.fromkeys(names, put))
        return put

    return register


@pose("CartPoleEnv", "MountainCarEnv", "Continuous_MountainCarEnv")
def _state(env: Any, observation: np.ndarray) -> None:
    env.state = np.asarray(observation, np.float64)


@pose("PendulumEnv")
def _pendulum(env: Any, observation: np.ndarray) -> None:
    cosine, sine, speed = (float(number) for number in observation)
    env.state, env.last_u = np.array([math.atan2(sine, cosine), speed]), None


@pose("AcrobotEnv")
def _acrobot(env: Any, observation: np.ndarray) -> None:
    cosine1, sine1, cosine2, sine2, speed1, speed2 = (float(number) for number in observation)
    env.state = np.array([math.atan2(sine1, cosine1), math.atan2(sine2, cosine2), speed1, speed2])


@pose("FrozenLakeEnv", "CliffWalkingEnv", "TaxiEnv")
def _number(env: Any, observation: np.ndarray) -> None:
    env.s, env.lastaction = int(observation), None


def painter_of(
    space: spaces.Space,
    *,
    nested: spaces.Space | None = None,
    frame_stack: int = 1,
    names: Sequence[str] = (),
    viewer: gym.Env | None = None,
    enlarge: bool = True,
) -> Painter:
    """What draws observations of a space as vector environments store them.

    nested: the space before dicts and tuples were flattened; the first image in it is drawn.
    frame_stack: images of which an observation is made; the newest is drawn.
    names: of the entries of a vector.
    viewer: an environment of the same kind that renders, begun; it draws where an observation tells its whole state.
    enlarge: draw small images larger; without, each pixel of an image is one of the picture.
    """
    if is_image_space(space):
        return functools.partial(_draw_image, stack=frame_stack, enlarge=enlarge)
    start = 0
    for _, leaf in leaves(nested) if isinstance(nested, spaces.Dict | spaces.Tuple) else []:
        place = slice(start, start := start + spaces.flatdim(leaf))
        if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3:
            return functools.partial(_draw_part, place=place, shape=leaf.shape, enlarge=enlarge)
    if viewer is not None and tells_all(space, viewer):
        return functools.partial(_draw_posed, viewer=viewer, put=POSES[type(viewer.unwrapped).__name__])
    return functools.partial(_draw_lines, names=tuple(names))


def tells_all(space: spaces.Space, viewer: gym.Env) -> bool:
    """Whether observations are those of the environment itself, and say what it has to draw."""
    own = viewer.unwrapped.observation_space
    return type(viewer.unwrapped).__name__ in POSES and type(own) is type(space) and own.shape == space.shape


def _draw_image(observations: Sequence[np.ndarray], *, stack: int, enlarge: bool) -> np.ndarray:
    pixels = observations[-1]
    colours = len(pixels) // stack if len(pixels) % stack == 0 else len(pixels)
    newest = pixels[-colours:] if colours in COLOURS else pixels[-1:]
    return coloured(newest.transpose(1, 2, 0), enlarge)


def _draw_part(
    observations: Sequence[np.ndarray], *, place: slice, shape: tuple[int, ...], enlarge: bool
) -> np.ndarray:
    pixels = np.clip(np.rint(observations[-1][place]), 0, 255).astype(np.uint8).reshape(shape)
    channels_first = shape[-1] not in COLOURS and shape[0] in COLOURS
    return coloured(pixels.transpose(1, 2, 0) if channels_first else pixels, enlarge)


def _draw_posed(
    observations: Sequence[np.ndarray], *, viewer: gym.Env, put: Callable[[Any, np.ndarray], None]
) -> np.ndarray:
    put(viewer.unwrapped, observations[-1])
    return np.asarray(viewer.render())


def coloured(pixels: np.ndarray, enlarge: bool) -> np.ndarray:
    """A picture [height, width, colours] in red, green and blue; larger in whole steps where it is small, if that is wanted."""
    if pixels.shape[-1] not in (3, 4):
        pixels = np.repeat(pixels[..., -1:], 3, axis=-1)
    factor = max(1, SHOWN_PIXELS // max(pixels.shape[:2])) if enlarge else 1
    return np.ascontiguousarray(pixels[..., :3].repeat(factor, 0).repeat(factor, 1))


def _draw_lines(observations: Sequence[np.ndarray], *, names: tuple[str, ...]) -> np.ndarray:
    """One line over time for each of the first entries, each on a scale of its own."""
    rows = np.stack([np.ravel(observation) for observation in observations[-SHOWN_STEPS:]]).astype(np.float64)
    count = min(MOST_LINES, rows.shape[1])
    height = 32 if count > 6 else 48
    picture = Image.new("RGB", (CHART_WIDTH, 2 * MARGIN + count * height), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    font = _font()
    left, right = MARGIN + NAME_WIDTH, CHART_WIDTH - MARGIN - VALUE_WIDTH
    for index in range(count):
        top, bottom = MARGIN + index * height + 3, MARGIN + (index + 1) * height - 3
        name = names[index] if index < len(names) else f"entry {index}"
        middle = (top + bottom) / 2
        draw.text((MARGIN, middle), _cut(name, font), fill=DIM, font=font, anchor="lm")
        draw.text((CHART_WIDTH - MARGIN, middle), f"{rows[-1, index]:.3g}", fill=TEXT, font=font, anchor="rm")
        draw.rounded_rectangle((left, top, right, bottom), 3, fill=TRACK)
        draw.line(_points(rows[:, index], left + 4, right - 4, top + 4, bottom - 4), fill=LINE, width=2)
    return np.asarray(picture)


def _points(values: np.ndarray, left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    """A line through values from the left, as wide as the steps that are shown."""
    low, high = float(values.min()), float(values.max())
    # A value that hardly changes lies in the middle, and its noise is not blown up.
    room = max(high - low, 1e-3 * max(1.0, abs(low), abs(high)))
    middle = (low + high) / 2
    across = left + (right - left) * np.arange(len(values)) / (SHOWN_STEPS - 1)
    up = (top + bottom) / 2 - (bottom - top) * (values - middle) / room
    points = list(zip(across.tolist(), up.tolist(), strict=True))
    return points if len(points) > 1 else [points[0], (points[0][0] + 1, points[0][1])]


@functools.cache
def _font() -> Any:
    return ImageFont.load_default(12)


def _cut(name: str, font: Any) -> str:
    """A name as far as there is room for it."""
    while len(name) > 1 and font.getlength(name) > NAME_WIDTH - 8:
        name = name[:-2].rstrip() + "…"
    return name
