"""Evolution of a vector of weights: CMA-ES (Hansen 2016, by the package cma), and the trials in which a population is judged.

    evolution.ask() -> weights [P, D]    trial: each of them plays `rollouts` episodes    evolution.tell(returns [P])

CMA-ES makes costs small, so that returns are negated; the weights' mean square, times `l2`, is added to them and thus only affects the ranking.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cma
import numpy as np
import torch
from torch import Tensor, nn

STATE: dict[str, tuple[str, ...]] = {
    "": ("sigma", "mean", "mean_old", "mean_old_old", "mean_after_tell", "pc", "countiter", "countevals"),
    "sm": ("C", "B", "D", "last_update", "count_tell", "count_eigen"),
    "adapt_sigma": ("ps", "delta", "_ps_updated_iteration", "s"),
}
"""What of a CMAEvolutionStrategy, and of its parts, the next generations depend on; everything else follows from its options or only tells when to stop.

Many weights get another rule for sigma than few: `s` is its memory, beside the two samples along the mean's last step that the next generation begins with.
"""


class Evolution:
    """A population that is drawn anew in each generation from a Normal that moves towards what was best."""

    def __init__(
        self,
        size: int,
        generator: np.random.Generator,
        *,
        population: int = 64,
        sigma: float = 0.1,
        l2: float = 0.01,
        mean: np.ndarray | None = None,
    ) -> None:
        """Begin at `mean` (zeros unless given) with deviation `sigma`; all chance comes from `generator`."""
        self.size, self.population, self.sigma_at_start, self.l2 = size, population, sigma, l2
        self.generator = generator
        self._begin(np.zeros(size) if mean is None else mean)

    def _begin(self, mean: np.ndarray) -> None:
        options: dict[str, Any] = {
            "popsize": self.population,
            "verbose": -9,
            "verb_log": 0,
            "verb_disp": 0,
            "seed": np.nan,
        }
        # Mirrored samples, its default for fewer than 6, would make the last generation a part of the state.
        options["CMA_mirrors"] = 0
        options["randn"] = lambda *shape: self.generator.standard_normal(shape)
        self._strategy = cma.CMAEvolutionStrategy(mean, self.sigma_at_start, options)
        self._asked: list[np.ndarray] | None = None
        self._before: dict[str, Any] = {}

    @property
    def generation(self) -> int:
        """Generations that were told of."""
        return int(self._strategy.countiter)

    @property
    def sigma(self) -> float:
        """Overall deviation of the Normal."""
        return float(self._strategy.sigma)

    @property
    def mean(self) -> np.ndarray:
        """[D] the middle of the Normal: what the strategy thinks best."""
        return np.array(self._strategy.mean)

    def ask(self) -> np.ndarray:
        """[P, D] the generation that is to be judged; the same until `tell`."""
        if self._asked is None:
            self._before = self._state()
            self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, returns: np.ndarray) -> None:
        """Learn from the returns [P] of the generation that was asked for."""
        population = self.ask()
        costs = self.l2 * np.square(population).mean(1) - returns
        self._strategy.tell(self._asked, costs.tolist())
        self._asked = None

    def get_state(self) -> dict[str, Any]:
        """Arrays and numbers. Of an open generation, those from before it was drawn: it is drawn again."""
        if self._asked is None:
            return {**self._state(), "open": False}
        return {**self._before, "open": True}

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"generator": self.generator.bit_generator.state}
        for part, names in STATE.items():
            owner = getattr(self._strategy, part) if part else self._strategy
            for name in names:
                value = getattr(owner, name, None)
                state[f"{part}.{name}"] = value.copy() if isinstance(value, np.ndarray) else value
        state["directions"] = [direction.copy() for direction in self._strategy.pop_injection_directions]
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was, bit for bit."""
        self._begin(np.zeros(self.size))
        strategy = self._strategy
        for part, names in STATE.items():
            owner = getattr(strategy, part) if part else strategy
            for name in names:
                value = state[f"{part}.{name}"]
                setattr(owner, name, value.copy() if isinstance(value, np.ndarray) else value)
        # The strategy reads the sampler's matrices under names of its own.
        strategy.C, strategy.B, strategy.D = strategy.sm.C, strategy.sm.B, strategy.sm.D
        strategy.dC = np.diag(strategy.sm.C)
        strategy.pop_injection_directions = [np.array(direction) for direction in state["directions"]]
        # It measures its own time from the first generation on, and only for people to read.
        strategy.timer = cma.utilities.utils.ElapsedWCTime()
        self.generator.bit_generator.state = state["generator"]
        if state["open"]:
            self.ask()


class Trial:
    """K sets of weights that play `rollouts` episodes each in N environments at once, whoever is free the next.

    An environment that is free when nothing is left to begin goes on with what it had, and what it does no longer counts.
    """

    IDLE = -1

    def __init__(self, weights: np.ndarray, rollouts: int, num_envs: int, kind: str) -> None:
        self.weights, self.rollouts, self.kind = weights, rollouts, kind
        """[K, D]; episodes each; and what the trial is for, in the words of whoever holds it."""
        # Turn by turn through all of them, so that those who are judged at the same time are judged alike.
        self.waiting = deque(np.tile(np.arange(len(weights)), rollouts).tolist())
        self.players = np.full(num_envs, self.IDLE)
        """[N] whose episode each environment plays."""
        self.shown = np.zeros(num_envs, np.int64)
        """[N] whose weights each environment acts by; those of the last player where it is idle."""
        self.returns: list[list[float]] = [[] for _ in weights]
        """Returns of each one's finished episodes."""
        self.begin(np.arange(num_envs))

    def begin(self, environments: np.ndarray) -> None:
        """Give those of these environments, which begin an episode, that have no player the next one."""
        for environment in environments[self.players[environments] == self.IDLE].tolist():
            self.players[environment] = self.waiting.popleft() if self.waiting else self.IDLE
            if self.players[environment] != self.IDLE:
                self.shown[environment] = self.players[environment]

    def end(self, environment: int, episode_return: float, broken: bool = False) -> None:
        """Count the episode that this environment has finished; a broken one is played again."""
        player = int(self.players[environment])
        if player == self.IDLE:
            return
        if broken:
            self.waiting.append(player)
        else:
            self.returns[player].append(episode_return)
        self.players[environment] = self.IDLE

    @property
    def finished(self) -> bool:
        """Whether all episodes are played."""
        return all(len(returns) == self.rollouts for returns in self.returns)

    @property
    def means(self) -> np.ndarray:
        """[K] mean returns."""
        return np.array([np.mean(returns) for returns in self.returns])

    def get_state(self) -> dict[str, Any]:
        """Arrays and numbers."""
        return {
            "weights": self.weights,
            "rollouts": self.rollouts,
            "kind": self.kind,
            "waiting": list(self.waiting),
            "players": self.players.copy(),
            "shown": self.shown.copy(),
            "returns": [list(returns) for returns in self.returns],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Trial:
        """The trial that gave this state."""
        trial = cls(state["weights"], state["rollouts"], len(state["players"]), state["kind"])
        trial.waiting = deque(state["waiting"])
        trial.players, trial.shown = np.array(state["players"]), np.array(state["shown"])
        trial.returns = [list(returns) for returns in state["returns"]]
        return trial


class Elite(nn.Module):
    """The controller that is called best: none is, before a trial of its own over enough episodes says so.

    The best of a generation owes much to luck. So it is played again beside the one it would replace, whose episodes are added to those it has
    already; the larger mean wins.
    """

    weights: Tensor
    total: Tensor
    episodes: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(size))
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("episodes", torch.zeros((), dtype=torch.int64))

    @property
    def mean_return(self) -> float:
        """Over all episodes that it has played as a contender."""
        return float(self.total) / max(1, int(self.episodes))

    def contenders(self, *others: np.ndarray) -> np.ndarray:
        """[K, D] these and, last, the present elite, unless there is none yet."""
        incumbent = [self.weights.cpu().numpy()] if self.episodes else []
        return np.stack([*others, *incumbent])

    def judge(self, trial: Trial) -> None:
        """Take the best of a finished trial of `contenders`."""
        totals = np.array([np.sum(returns) for returns in trial.returns])
        episodes = np.full(len(totals), trial.rollouts)
        if self.episodes:
            totals[-1] += float(self.total)
            episodes[-1] += int(self.episodes)
        best = int((totals / episodes).argmax())
        self.weights.copy_(torch.from_numpy(trial.weights[best]))
        self.total.fill_(totals[best])
        self.episodes.fill_(int(episodes[best]))

    def forget(self) -> None:
        """What it has returned was in another world; its weights stay."""
        self.total.zero_()
        self.episodes.zero_()


def draw_generations(path: Path, history: Sequence[Sequence[float]]) -> Path:
    """Rows of (mean, best, elite, sigma) by generation, as lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    returns, deviation = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    rows = np.array(history).reshape(-1, 4)
    generations = np.arange(1, len(rows) + 1)
    for column, name, style in (
        (0, "mean of the population", "C0-"),
        (1, "best of it", "C2-"),
        (2, "elite, judged again", "k-"),
    ):
        returns.plot(generations, rows[:, column], style, label=name)
    deviation.plot(generations, rows[:, 3], "C3-")
    returns.set_ylabel("return")
    returns.legend(loc="best", fontsize="small")
    deviation.set(ylabel="sigma", xlabel="generation")
    figure.savefig(path, dpi=110)
    return path
