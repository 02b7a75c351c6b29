"""Looking at what a world model expects: observed up to a point, dreamt from there, beside what really came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymlab.components.dreamer_networks import WorldModel
from gymlab.components.observation_parts import VECTOR
from gymlab.components.rssm import State

HORIZONS = (1, 5, 15)
"""Steps into the dream at which its error is reported."""
READ_AT_ONCE = 4096
"""States of dreams that heads and critic read together: fewer mean many small operations, more leave the processor's cache."""
HELD_OUT_ROWS = 32
"""Sequences by which a model is judged."""
MOST_LINES = 6
"""Dimensions of a vector that a picture shows."""
MOST_PICTURES = 12
NAMES = ("truth", "reconstruction", "dream")
LINES = ("k-", "C0-", "C3--")


@dataclass(frozen=True, slots=True)
class Dreamt:
    """H steps of N dreams; state 0 is where they began."""

    hidden: Tensor
    """[H + 1, N, U] what the critic makes of each state, before its last layer."""
    parameters: Tensor
    """[H, N, P] of the actor, in all states but the last."""
    actions: Tensor
    """[H, N, A] that were taken there."""
    reward: Tensor
    """[H + 1, N] predicted for arriving in each state."""
    discount: Tensor
    """[H + 1, N] probability of going on from each state, gamma included."""
    slow_value: Tensor
    """[H + 1, N] by the slow critic; zeros without one."""
    value: Tensor | None
    """[H + 1, N] differentiable along the dream, where the actor learns through the model."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Sequences that were not trained on, from the step on that a dream does not see, [T, B, ...] by key."""

    truth: dict[str, np.ndarray]
    reconstruction: dict[str, np.ndarray]
    dream: dict[str, np.ndarray]
    whole: np.ndarray
    """[T, B] whether the step is of the episode in which the dream began."""

    def errors(self) -> dict[str, float]:
        """Root mean squared errors of the dreams after 1, 5 and 15 steps; images count from 0 to 1."""
        errors = {}
        for horizon in HORIZONS:
            if horizon > len(self.whole) or not self.whole[horizon - 1].any():
                continue
            row, squares = (horizon - 1, self.whole[horizon - 1]), []
            for key, dream in self.dream.items():
                scale = 1.0 if key == VECTOR else 255.0
                difference = (dream[row] - self.truth[key][row].astype(np.float32)) / scale
                squares.append(float(np.square(difference).mean()))
            errors[f"world_model/open_loop/{horizon}"] = float(np.sqrt(np.mean(squares)))
        return errors

    def longest(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
        """For each key truth, reconstruction and dream of the sequence that goes on longest, to its episode's end."""
        steps = self.whole.sum(0)
        row = int(steps.argmax())
        if steps[row]:
            for key in self.truth:
                shown = (self.truth, self.reconstruction, self.dream)
                truth, reconstruction, dream = (values[key][: steps[row], row] for values in shown)
                yield key, truth, reconstruction, dream

    def pictures(self) -> dict[str, Callable[[Path], Any]]:
        """What draws a dream beside the truth, for each image and for the vector."""
        return {f"Dream of {key}": partial(draw_dream, shown=values) for key, *values in self.longest()}

    def films(self) -> dict[str, Iterator[np.ndarray]]:
        """Frames of dreams of images: truth, reconstruction and dream side by side."""
        return {f"dream_{key}": map(side_by_side, *values) for key, *values in self.longest() if key != VECTOR}


class ShowsDreams:
    """Pictures and films for a workflow that says which dreams they are of."""

    def dreams_held_out(self) -> HeldOut | None:
        """Sequences that were never trained on, seen up to a point and dreamt from there; None as long as there are none."""
        return None

    def pictures(self) -> dict[str, Callable[[Path], Any]]:
        """A dream beside the truth, for each image and for the vector."""
        held_out = self.dreams_held_out()
        return {} if held_out is None else held_out.pictures()

    def films(self) -> dict[str, Iterator[np.ndarray]]:
        """Dreams of images: truth, reconstruction and dream side by side."""
        held_out = self.dreams_held_out()
        return {} if held_out is None else held_out.films()


class Passing:
    """While it is entered, gradients go through these modules and not into them."""

    def __init__(self, *modules: nn.Module) -> None:
        self.parameters = [p for module in modules for p in module.parameters() if p.requires_grad]

    def __enter__(self) -> None:
        for parameter in self.parameters:
            parameter.requires_grad_(False)

    def __exit__(self, *reason: object) -> None:
        for parameter in self.parameters:
            parameter.requires_grad_(True)


def time_first(
    values: Mapping[str, np.ndarray], context: int, device: torch.device, reward_unit: float = 1.0
) -> dict[str, Tensor]:
    """Windows [B, context + T, ...] as [T, B, ...], with the action before each step; latents of the context as `deter`, `stoch`."""
    tensors = {name: torch.from_numpy(array).to(device).transpose(0, 1) for name, array in values.items()}
    data = {name: value[context:] for name, value in tensors.items() if not name.startswith("latent/")}
    data["reward"] = data["reward"] / reward_unit
    actions = tensors["action"]
    if context:
        data["previous_action"] = actions[:-1]
        data |= {name.removeprefix("latent/"): tensors[name][0] for name in tensors if name.startswith("latent/")}
    else:
        data["previous_action"] = torch.cat([torch.zeros_like(actions[:1]), actions[:-1]])
    return data


@torch.no_grad()
def look_ahead(
    model: WorldModel,
    observations: Mapping[str, Tensor],
    previous_action: Tensor,
    is_first: Tensor,
    start: State,
    seen: int,
) -> tuple[State, State]:
    """States [T - seen, B, ...] of a model that sees all T steps, and of one that sees only the first `seen`.

    Latents are the most likely ones, so that the same sequence gives the same dream.
    """
    length, count = is_first.shape
    embedding = model.encoder({key: value.flatten(0, 1) for key, value in observations.items()})
    states, _ = model.rssm.observe(embedding.unflatten(0, (length, count)), previous_action, is_first, start, None)
    state = State(states.deter[seen - 1], states.stoch[seen - 1])
    dreamt = []
    for action in previous_action[seen:]:
        state = model.rssm.dream(state, action, None)
        dreamt.append(state)
    dream = State(torch.stack([s.deter for s in dreamt]), torch.stack([s.stoch for s in dreamt]))
    return State(states.deter[seen:], states.stoch[seen:]), dream


def decoded(model: WorldModel, states: State) -> dict[str, np.ndarray]:
    """Expected observations [T, B, ...] in their own units."""
    length, count = states.deter.shape[:2]
    with torch.no_grad():
        expected = model.decoder(states.flatten())
    return {key: value.unflatten(0, (length, count)).cpu().numpy() for key, value in expected.items()}


def hold_out(model: WorldModel, data: Mapping[str, Tensor], start: State) -> HeldOut:
    """What a model makes of sequences [T, B, ...] that it was not trained on; the last 15 steps are dreamt."""
    prefix = "observation/"
    observations = {name.removeprefix(prefix): data[name] for name in data if name.startswith(prefix)}
    seen = max(1, len(data["is_first"]) - HORIZONS[-1])
    after, dream = look_ahead(model, observations, data["previous_action"], data["is_first"], start, seen)
    truth = {key: value[seen:].cpu().numpy() for key, value in observations.items()}
    whole = np.logical_and.accumulate(~data["is_first"][seen:].cpu().numpy().astype(bool))
    return HeldOut(truth, decoded(model, after), decoded(model, dream), whole)


def calibration(reward: Tensor, going_on: Tensor | None, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How far predicted rewards and endings are from the true ones, on average: 0 is right; of true ends, the share foreseen.

    Without a continue head there is nothing to say about endings.
    """
    rewards = {
        "world_model/reward_bias": (reward - data["reward"]).mean(),
        "world_model/reward_error": (reward - data["reward"]).abs().mean(),
    }
    if going_on is None:
        return rewards
    ends = data["is_terminal"].float()
    foreseen = ((1 - going_on) * ends).sum() / ends.sum().clamp(min=1)
    return rewards | {
        "world_model/end_bias": (1 - going_on).mean() - ends.mean(),
        # Where the batch has no ending there is nothing to be wrong about.
        "world_model/end_foreseen": torch.where(ends.any(), foreseen, torch.ones_like(foreseen)),
    }


def side_by_side(*images: np.ndarray) -> np.ndarray:
    """Pictures [C, H, W] with values 0..255 as one, [H, n W, 3] bytes."""
    row = np.concatenate(images, axis=-1)
    pixels = np.clip(row, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1].repeat(3, -1)


def draw_dream(path: Path, shown: Sequence[np.ndarray]) -> Path:
    """Truth, reconstruction and dream [T, ...] over time: rows of pictures with what differs, or lines of the first dimensions of a vector."""
    from matplotlib.figure import Figure

    truth, reconstruction, dream = shown
    if truth.ndim == 4:
        rows = [("truth", truth)]
        for name, guess in (("reconstruction", reconstruction), ("dream", dream)):
            rows += [(name, guess), ("difference", np.abs(guess - truth.astype(np.float32)))]
        steps = np.unique(np.linspace(0, len(truth) - 1, min(MOST_PICTURES, len(truth))).round().astype(int))
        figure = Figure(figsize=(1.3 * len(steps), 7.0), layout="constrained")
        axes = figure.subplots(len(rows), 1)
        for axis, (name, images) in zip(axes, rows, strict=True):
            axis.imshow(side_by_side(*images[steps]), interpolation="nearest")
            axis.set(yticks=[], ylabel=name)
            width = truth.shape[-1]
            axis.set_xticks([width * (k + 0.5) for k in range(len(steps))], [str(step + 1) for step in steps])
        axes[-1].set_xlabel("steps into the dream")
    else:
        count = min(MOST_LINES, truth.shape[1])
        figure = Figure(figsize=(8, 1.4 * count + 0.6), layout="constrained")
        axes = np.atleast_1d(figure.subplots(count, 1, sharex=True))
        for number, axis in enumerate(axes):
            for name, values, style in zip(NAMES, shown, LINES, strict=True):
                axis.plot(np.arange(1, len(values) + 1), values[:, number], style, label=name)
            axis.set_ylabel(f"dimension {number}")
        axes[0].legend(loc="upper right", ncols=3, fontsize="small")
        axes[-1].set_xlabel("steps into the dream")
    figure.savefig(path, dpi=110)
    return path
