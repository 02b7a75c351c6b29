"""What is compared: the PPO settings, which are the same for every library, and the libraries."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gymlab.errors import GymlabError, did_you_mean

REFERENCE = "stable-baselines3"
"""The library that ratios are taken to."""

MODULES = {
    "gymlab": "gymlab",
    REFERENCE: "stable_baselines3",
    "sbx": "sbx",
    "skrl": "skrl",
    "tianshou": "tianshou",
}
"""Libraries that can be compared, with the module that shows whether one is installed."""

TORCH_LIBRARIES = ("gymlab", REFERENCE, "skrl", "tianshou")
"""Libraries for which a number of torch threads means something."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One PPO problem: environments, rollout and optimisation, alike for all libraries."""

    name: str
    n_envs: int
    n_steps: int
    n_epochs: int
    batch_size: int
    nominal_rate: float = 10_000.0
    """Environment steps a second of the reference on a common machine: turns seconds into a number of steps."""
    goal: float | None = None
    """Ratio to the reference that gymlab must reach with default settings."""
    fastest_goal: float | None = None
    """Ratio to the reference that gymlab must reach with its fastest option."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 3e-4
    clip_range: float = 0.2
    linear: bool = False
    """Learning rate and clip range fall linearly to 0 over the budget."""
    env_id: str = "CartPole-v1"
    pixels: bool = False
    """Atari pictures (84x84, grey, 4 frames, skip 4) and the Nature network instead of a vector and a small MLP."""

    @property
    def rollout(self) -> int:
        """Environment steps a cycle."""
        return self.n_envs * self.n_steps

    @property
    def minibatches(self) -> int:
        """Gradient steps a cycle."""
        return self.n_epochs * self.rollout // self.batch_size

    def steps_for(self, seconds: float) -> int:
        """Whole rollouts that the reference does in about `seconds`, and never fewer than a rate needs."""
        return max(5, math.ceil(seconds * self.nominal_rate / self.rollout)) * self.rollout

    def describe(self) -> str:
        """The setting in words."""
        return f"{self.n_envs} envs x {self.n_steps} steps, {self.n_epochs} epochs, batch {self.batch_size}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a worker process and for the JSON report."""
        return asdict(self)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("8x128", 8, 128, 4, 256, nominal_rate=11_000, goal=2.5, fastest_goal=3.0),
        Setting("8x32", 8, 32, 10, 256, nominal_rate=7_000, goal=1.7),
        Setting("64x128", 64, 128, 4, 2048, nominal_rate=37_000, goal=2.2),
    )
}

RL_ZOO_CARTPOLE = Setting(
    "rl-zoo CartPole", 8, 32, 20, 256, gamma=0.98, gae_lambda=0.8, learning_rate=1e-3, clip_range=0.2, linear=True
)
"""The hyperparameters of RL Baselines3 Zoo for CartPole-v1."""
RL_ZOO_STEPS = 100_000
"""Its budget, which its linear schedules run over."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A library with options: one row of a comparison."""

    name: str
    library: str
    threads: int | None = 1
    """Torch threads; None leaves the library's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """Overrides for gymlab's config."""


def installed(library: str) -> bool:
    """Whether the library can be imported here."""
    return importlib.util.find_spec(MODULES[library]) is not None


def choose_peers(names: Sequence[str] | None) -> list[str]:
    """The peer libraries to compare with: those named, or all that are installed. The reference must be there."""
    peers = [name for name in MODULES if name != "gymlab"]
    for name in names or ():
        if name not in peers:
            raise GymlabError(f"Unknown peer {name!r}. {did_you_mean(name, peers)} Known: {', '.join(peers)}.")
        if not installed(name):
            raise GymlabError(f"The peer {name!r} is not installed. Install it with: pip install {package_of(name)}")
    if not installed(REFERENCE):
        raise GymlabError(
            f"The comparison needs {REFERENCE}, which is not installed. Install it with: pip install 'gymlab[peers]'"
        )
    chosen = [name for name in peers if installed(name) and (names is None or name in names)]
    return [REFERENCE, *(name for name in chosen if name != REFERENCE)]


def package_of(library: str) -> str:
    """The name under which pip knows a library."""
    return {"sbx": "sbx-rl"}.get(library, library)


def contenders(peers: Sequence[str], backends: Sequence[str]) -> list[Contender]:
    """gymlab as it comes, gymlab with each update backend, the peers, and torch peers at torch's default of threads."""
    rows = [Contender("gymlab", "gymlab")]
    rows += [Contender(f"gymlab {backend}", "gymlab", options={"update_backend": backend}) for backend in backends]
    rows += [Contender(peer, peer) for peer in peers]
    rows += [Contender(f"{peer}, default threads", peer, threads=None) for peer in peers if peer in TORCH_LIBRARIES]
    return rows
