"""One file a library: how it trains a setting, with a mark after every cycle. Imported only in worker processes."""

from __future__ import annotations

import importlib
from typing import Any

_FILES = {
    "gymlab": "own",
    "stable-baselines3": "sb3",
    "sbx": "sbx",
    "skrl": "skrl_peer",
    "tianshou": "tianshou_peer",
}


def load_peer(library: str) -> Any:
    """The module that trains with `library`: it has `train(setting, env_steps, seed, ...) -> list[Mark]`."""
    return importlib.import_module(f"gymlab.bench.peers.{_FILES[library]}")
