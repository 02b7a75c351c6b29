"""sbx: stable-baselines3's interface over JAX; the same environments, logger and marks."""

from __future__ import annotations

from typing import Any

from sbx import PPO

from gymlab.bench.measure import Mark
from gymlab.bench.peers import sb3
from gymlab.bench.settings import Setting


def train(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], max_seconds: float | None
) -> list[Mark]:
    """Train for `env_steps` and give a mark for every cycle."""
    return sb3.train(setting, env_steps, seed, options, max_seconds, algorithm=PPO)
