"""gymlab: one command trains any agent on any environment.

    import gymlab

    run = gymlab.train("CartPole-v1:ppo", n_envs=16)
    agent = gymlab.load("@last")
    action = agent.act(observation)

The command line does the same: `gymlab train CartPole-v1:ppo`.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

# Threads that wait by spinning starve everything else on a busy machine, and threads that sleep at once wake late on an idle one:
# GNU's OpenMP spins for a fraction of a millisecond, others sleep. Both are read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

if TYPE_CHECKING:
    from gymlab.api import get_hyperparameters, load, repeat, resolve, resume, set_hyperparameters, train

__all__ = ["get_hyperparameters", "load", "repeat", "resolve", "resume", "set_hyperparameters", "train"]
__version__ = version("gymlab")


def __getattr__(name: str) -> Any:
    """Import the API when it is first used: `gymlab --help` must not wait for torch."""
    if name in __all__:
        from gymlab import api

        return getattr(api, name)
    raise AttributeError(f"module 'gymlab' has no attribute {name!r}")
