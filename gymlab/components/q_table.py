"""A table of action values: looked up, learned from transitions, printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.table import Table
from rich.text import Text
from torch import nn

from gymlab.components.state_index import UNSEEN, state_index
from gymlab.errors import EnvironmentFailure

ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓", "west": "←", "east": "→", "north": "↑", "south": "↓"}
"""How actions with these names are drawn; others are drawn as their number."""
LARGEST_LETTERED = 12
"""Grids with more columns than this get no numbers in their fields: they would not be legible."""


class QTable(nn.Module):
    """Q [S, A] in float64 with how often each entry was learned, and which actions each state allows.

    Everything is a buffer: it is saved with the agent. It stays on the CPU in float64 wherever the module goes, and numpy views share its memory.
    """

    q: torch.Tensor
    visits: torch.Tensor
    allowed: torch.Tensor

    def __init__(self, space: spaces.Space, actions: int, *, initial_value: float = 0.0, max_states: int) -> None:
        super().__init__()
        self.index = state_index(space, max_states)
        shape = (self.index.count, actions)
        self.initial_value = initial_value
        self.register_buffer("q", torch.full(shape, initial_value, dtype=torch.float64))
        self.register_buffer("visits", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("allowed", torch.ones(shape, dtype=torch.bool))

    def _apply(self, fn: Any, recurse: bool = True) -> QTable:
        # A lookup is a few nanoseconds beside an environment's step: no device and no lower precision would help.
        return self

    def remember_mask(self, states: np.ndarray, mask: np.ndarray) -> None:
        """Note which actions [B, A] are allowed in which states [B].

        An environment gives the mask of what is acted on next; of the last state of an episode that was cut off it gives none, and what
        is known of that state from other visits stands in.
        """
        self.allowed.numpy()[states] = mask

    def values(self, states: np.ndarray) -> np.ndarray:
        """[B, A] values; a state that was never seen has the initial ones."""
        rows: np.ndarray = self.q.numpy()[states]
        rows[states == UNSEEN] = self.initial_value
        return rows

    def probabilities(self, values: np.ndarray, epsilon: float, mask: np.ndarray | None = None) -> np.ndarray:
        """Epsilon-greedy [B, A]: the best actions share 1 - epsilon evenly, all allowed ones share epsilon."""
        if mask is None:
            best = values == values.max(axis=1, keepdims=True)
            return (1 - epsilon) / best.sum(axis=1, keepdims=True) * best + epsilon / values.shape[1]
        if not mask.any(axis=1).all():
            raise EnvironmentFailure("The environment's action_mask allows no action at all in a state to act on.")
        masked = np.where(mask, values, -np.inf)
        best = masked == masked.max(axis=1, keepdims=True)
        greedy = (1 - epsilon) / best.sum(axis=1, keepdims=True) * best
        return greedy + epsilon / mask.sum(axis=1, keepdims=True) * mask

    def learn(
        self,
        states: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_states: np.ndarray,
        terminated: np.ndarray,
        *,
        policy_lr: float,
        gamma: float,
        masked: bool = False,
    ) -> float:
        """Q(s,a) += lr (r + gamma (1 - terminated) max_a' Q(s',a') - Q(s,a)) for each row in order; gives the sum of |TD errors|.

        A loop and not one array operation: rows that meet in a state learn one after the other, each from what those before it have left.
        With `masked`, the maximum is over the actions that the next state allows.
        """
        q, visits, allowed = self.q.numpy(), self.visits.numpy(), self.allowed.numpy()
        total = 0.0
        rows = (states, actions, rewards, next_states, terminated)
        for state, action, reward, following, ended in zip(*(row.tolist() for row in rows), strict=True):
            target = reward
            if not ended:
                values = q[following].tolist()
                target += gamma * max(compress(values, allowed[following].tolist()) if masked else values)
            error = target - q[state, action]
            q[state, action] += policy_lr * error
            visits[state, action] += 1
            total += abs(error)
        return float(total)

    @property
    def visited_share(self) -> float:
        """Share of the entries that were ever learned, of those that stand for a known state and an allowed action."""
        known = self.index.known
        possible = int(self.allowed.numpy()[:known].sum())
        return float((self.visits.numpy()[:known] > 0).sum()) / possible if possible else 0.0

    def greedy(self, state: int) -> list[int]:
        """The best allowed actions of a state: more than one in a tie."""
        mask = self.allowed.numpy()[[state]]
        return np.flatnonzero(self.probabilities(self.values(np.array([state])), 0.0, mask)[0]).tolist()

    def state_values(self) -> np.ndarray:
        """[known] the largest value of an allowed action in each known state."""
        known = self.index.known
        best: np.ndarray = np.where(self.allowed.numpy()[:known], self.q.numpy()[:known], -np.inf).max(axis=1)
        return best

    def text(self, labels: Mapping[int, str] | None = None, *, most: int = 64) -> Table:
        """The table to print with rich: a line a visited state, the best action in bold, at most `most` lines."""
        labels = labels or {}
        visited = np.flatnonzero(self.visits.numpy().sum(axis=1)).tolist()
        table = Table(title=f"Q: {len(visited)} visited of {self.index.known} states", show_edge=False)
        table.add_column("state", justify="right")
        for action in range(self.q.shape[1]):
            table.add_column(labels.get(action, str(action)), justify="right")
        table.add_column("visits", justify="right")
        for state in visited[:most]:
            best = self.greedy(state)
            cells = [
                Text(f"{value:.3f}", style="bold green" if action in best else "")
                for action, value in enumerate(self.q.numpy()[state].tolist())
            ]
            table.add_row(str(state), *cells, str(int(self.visits.numpy()[state].sum())))
        if len(visited) > most:
            table.caption = f"and {len(visited) - most} more states"
        return table

    def draw(
        self,
        path: str | Path,
        *,
        grid: tuple[int, int] | None = None,
        labels: Mapping[int, str] | None = None,
        title: str = "",
    ) -> Path:
        """A heat map: on a `grid` of rows and columns max Q and the greedy actions of each field, else all of Q."""
        from matplotlib.figure import Figure

        labels = labels or {}
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        visited = self.visits.numpy().sum(axis=1) > 0
        if grid is None:
            known = self.index.known
            shown = np.where(self.visits.numpy()[:known] > 0, self.q.numpy()[:known], np.nan)
            axes.set(xlabel="action", ylabel="state", xticks=range(shown.shape[1]))
            axes.set_xticklabels([labels.get(action, str(action)) for action in range(shown.shape[1])])
            image = axes.imshow(shown, aspect="auto", cmap="viridis", interpolation="nearest")
            figure.colorbar(image, ax=axes, label="Q (white: never tried)")
        else:
            values = np.where(visited, self.state_values(), np.nan).reshape(grid)
            axes.set(xticks=[], yticks=[])
            image = axes.imshow(values, cmap="viridis", interpolation="nearest")
            figure.colorbar(image, ax=axes, label="max Q (white: never acted in)", shrink=0.8)
            middle = (np.nanmin(values) + np.nanmax(values)) / 2 if visited.any() else 0.0
            for state in np.flatnonzero(visited).tolist():
                row, column = divmod(state, grid[1])
                signs = "".join(ARROWS.get(labels.get(action, ""), str(action)) for action in self.greedy(state))
                number = f"\n{values[row, column]:.2f}" if grid[1] <= LARGEST_LETTERED else ""
                colour = "black" if values[row, column] > middle else "white"
                axes.text(column, row, signs + number, ha="center", va="center", color=colour, fontsize=8)
        axes.set_title(title)
        path = Path(path)
        figure.savefig(path, dpi=120)
        return path
