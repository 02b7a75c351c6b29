"""Benchmarks: `gymlab bench <name>`. Everything that is timed runs in fresh worker processes."""

from __future__ import annotations

import importlib
from typing import Any

BENCHES = (
    "ppo",
    "atari",
    "envs",
    "collect",
    "loader",
    "update",
    "dreamer",
    "tdmpc",
    "dreams",
    "delta_iris",
    "convolutions",
)
"""Names of the benches; each is a module here with HELP, add_arguments(parser) and run_command(arguments) -> int."""


def load_bench(name: str) -> Any:
    """The module of a bench; nothing it imports needs torch before something is measured."""
    if name not in BENCHES:
        from gymlab.errors import GymlabError, did_you_mean

        raise GymlabError(f"Unknown bench {name!r}. {did_you_mean(name, BENCHES)} Known: {', '.join(BENCHES)}.")
    return importlib.import_module(f"gymlab.bench.{name}")
