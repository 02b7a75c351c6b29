"""Frames and speed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from gymlab.envs.build import Blueprint, make_vector, step_rate
from gymlab.envs.check.findings import Finding, ok, warning
from gymlab.envs.pace import ALL_THE_TIME, Pace
from gymlab.envs.vector import Seeds
from gymlab.envs.workers import AsyncVector
from gymlab.errors import EnvironmentFailure

RATE_SECONDS = 0.5
MOST_ENVIRONMENTS = 8
"""Environments that are stepped together for the rate; a config may ask for more."""


def frame(plan: Blueprint) -> Finding:
    """One frame in the mode that videos use."""
    without = (
        "Trainings work, their videos do not. Offer `rgb_array` in metadata['render_modes'] and take `render_mode`."
    )
    try:
        env = replace(plan, render_mode="rgb_array", shared={}).make(0)
    except EnvironmentFailure as error:
        return warning("frame", str(error), without)
    env.reset(seed=0)
    env.render()  # The first frame may load fonts and open a renderer: it is not counted.
    env.step(env.action_space.sample())
    start = time.perf_counter()
    picture: Any = env.render()
    seconds = time.perf_counter() - start
    if not isinstance(picture, np.ndarray):
        return warning("frame", f"render gave {type(picture).__name__}, not an array", without)
    shown = f"{'x'.join(map(str, picture.shape))} {picture.dtype}, {1000 * seconds:.1f} ms a frame"
    if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
        return warning("frame", shown, "A frame is an array of height x width x 3, uint8.")
    if "render_fps" not in (env.metadata or {}):
        return warning("frame", shown, "metadata has no 'render_fps': videos play at 30 frames a second.")
    return ok("frame", shown)


def speed(plan: Blueprint, seeds: Seeds, pace: Pace) -> Finding:
    """One environment alone, and several as `vectorization_mode: auto` would step them."""
    count = min(plan.config.n_envs, MOST_ENVIRONMENTS)
    with make_vector(plan.config, count, seeds, purpose=plan.purpose, pace=pace) as vector:
        rate, backend = step_rate(vector, RATE_SECONDS), vector.backend
        workers = vector.num_workers if isinstance(vector, AsyncVector) else 0
    chosen = f"{count} {backend}{f' in {workers} workers' if workers else ''} {rate:,.0f} steps/s"
    if plan.config.vectorization_mode == "auto":
        chosen += " (chosen by auto)"
    waits = f", of which it waits {1 - pace.computing:.0%}" if pace.computing < ALL_THE_TIME else ""
    return ok("speed", f"one {1 / pace.seconds:,.0f} steps/s{waits}; {chosen}")
