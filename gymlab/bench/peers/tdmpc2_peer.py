"""A plan and an update of TD-MPC2's authors, timed: `python tdmpc2_peer.py JOB` where torch and tensordict are, JSON in and out.

It imports nothing of gymlab. Their program, in a folder that the job names, is written for CUDA alone: a copy of it in a
temporary folder names the CPU instead. Their settings are read from their own file; the batch is random numbers of the
shapes that their replay gives.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml

FOR_CUDA = {
    "'cuda:0'": "'cpu'",
    "capturable=True": "capturable=False",
    "WorldModel(cfg).to(self.device)": "WorldModel(cfg)",
}
"""What their program says of the device, and what it has to say here."""


def on_the_cpu(source: Path, target: Path) -> None:
    """Copy their program, for the CPU."""
    shutil.copytree(source / "tdmpc2", target, dirs_exist_ok=True)
    for file in target.rglob("*.py"):
        text = file.read_text()
        for there, here in FOR_CUDA.items():
            text = text.replace(there, here)
        file.write_text(text)


def settings(source: Path, job: dict[str, Any]) -> SimpleNamespace:
    """Their own settings, at the size of the job."""
    from common import MODEL_SIZE

    values = yaml.safe_load((source / "tdmpc2" / "config.yaml").read_text())
    values |= MODEL_SIZE[job["size"]]
    values |= {
        "lr": float(values["lr"]),
        "entropy_coef": float(values["entropy_coef"]),
        "multitask": False,
        "task_dim": 0,
        "compile": False,
        "obs_shape": {"state": (job["observation"],)},
        "action_dim": job["actions"],
        "episode_length": 500,
        "bin_size": (values["vmax"] - values["vmin"]) / (values["num_bins"] - 1),
    }
    made = SimpleNamespace(**values)
    made.get = lambda name, default=None: getattr(made, name, default)
    return made


def medians(calls: dict[str, Callable[[], Any]], job: dict[str, Any]) -> dict[str, float]:
    """Seconds of each call, after the warm-up, turn by turn."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(job["warmup"] + job["repeats"]):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if number >= job["warmup"]:
                spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of a plan and of an update."""
    torch.manual_seed(job["seed"])
    torch.set_num_threads(job["threads"])
    source = Path(job["source"])
    with tempfile.TemporaryDirectory() as directory:
        on_the_cpu(source, Path(directory))
        sys.path.insert(0, directory)
        from tdmpc2 import TDMPC2

        config = settings(source, job)
        agent = TDMPC2(config)
        rows = (config.horizon, config.batch_size)
        batch = (
            torch.randn(config.horizon + 1, config.batch_size, job["observation"]),
            torch.rand(*rows, job["actions"]) * 2 - 1,
            torch.randn(*rows, 1),
            torch.zeros(*rows, 1),
        )
        observation = torch.randn(job["observation"])
        calls = {"plan": lambda: agent.act(observation), "update": lambda: agent._update(*batch)}
        found: dict[str, Any] = medians(calls, job)
        found["parameters"] = agent.model.total_params
    return found


def main() -> None:
    """Do the job given as the only argument and print its answer."""
    job = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(job)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
