"""Train every workflow briefly from another commit and from this tree, and compare the numbers.

`make same BASE=<commit>`: the weights of the last checkpoint and metrics.csv without `sys/` must be equal, bit for bit.
Both trees train on this machine in one go, since processors differ in the last bits; nothing is compared with a record.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
EXPERIMENTS = {
    "Bandit-v0:ppo": 2000,
    "CartPole-v1:ppo": 4000,
    "CartPole-v1:ppo_pixels": 64,
    "Pendulum-v1:ppo": 4000,
    "CartPole-v1:reinforce": 4000,
    "FrozenLake-v1:q_learning": 4000,
    "brax/inverted_pendulum:ppo": 4000,
    "Pendulum-v1:dreamer_v1": 200,
    "CartPole-v1:dreamer_v2": 200,
    "CartPole-v1:dreamer_v3": 200,
    "MiniGrid-Empty-6x6-v0:dreamer_v3_pixels": 64,
    "Pendulum-v1:tdmpc": 100,
    "Pendulum-v1:tdmpc2": 100,
    "CartPole-v1:tdmpc2": 100,
    "CartPole-v1:world_models": 1000,
    "MiniGrid-Empty-8x8-v0:delta_iris_tiny": 200,
}
"""What is trained, and for how many environment steps."""

TRAIN = "import sys; from pathlib import Path; from gymlab.cli.briefly import train_briefly; "
TRAIN += "train_briefly(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))"


@dataclass(frozen=True)
class Difference:
    """One tensor or metric that is not the same."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, compare, and say what differs; the code is 1 when anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="let each tree choose between its compiled kernel and torch by the clock, as a training does",
    )
    given = parser.parse_args(arguments)
    chosen = {name: steps for name, steps in EXPERIMENTS.items() if given.only in name}
    if not chosen:
        parser.error(f"no experiment has {given.only!r} in its name: {', '.join(EXPERIMENTS)}")
    differing = 0
    with tempfile.TemporaryDirectory(prefix="gymlab-same-") as scratch, worktree(given.base, Path(scratch)) as base:
        for name, steps in chosen.items():
            runs = []
            for tree, place in ((base, "base"), (ROOT, "here")):
                directory = Path(scratch) / place / name.replace("/", "-").replace(":", "-")
                runs.append(train(tree, name, steps, directory, compiled=given.compiled))
            found = [*tensor_differences(*runs), *metric_differences(*runs)]
            differing += bool(found)
            print(f"{'DIFFERS' if found else 'same   '}  {name}, {steps:,} steps", flush=True)
            for difference in found:
                print(f"         {difference}")
    print(f"{len(chosen) - differing} of {len(chosen)} are the same as {given.base}")
    return 1 if differing else 0


@contextmanager
def worktree(commit: str, scratch: Path) -> Iterator[Path]:
    """The files of a commit of this repository, for as long as they are needed."""
    path = scratch / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(path), commit], cwd=ROOT, check=True)
    try:
        yield path
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(path)], cwd=ROOT, check=True)


def train(tree: Path, experiment: str, steps: int, directory: Path, *, compiled: bool = False) -> Path:
    """Train an experiment with the code of `tree`; the run's directory."""
    kernels = {} if compiled else {"GYMLAB_KERNELS": "0"}
    environment = {**os.environ, **kernels, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    directory.mkdir(parents=True)
    command = [sys.executable, "-c", TRAIN, experiment, str(steps), str(directory / "runs")]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{experiment} does not train with {tree}:\n{done.stderr or done.stdout}")
    return next(path for path in (directory / "runs").iterdir() if (path / "metrics.csv").exists())


def tensor_differences(base: Path, here: Path) -> Iterator[Difference]:
    """Tensors of the last checkpoints that are not equal in bits, the largest difference of each."""
    file = Path("checkpoints") / "last.ckpt" / "model.safetensors"
    before, after = load_file(base / file), load_file(here / file)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            yield Difference(name, f"only {'here' if name in after else 'in the base'}")
        elif before[name].shape != after[name].shape or before[name].dtype != after[name].dtype:
            was, now = (f"{values.dtype} {list(values.shape)}" for values in (before[name], after[name]))
            yield Difference(name, f"{was} in the base, {now} here")
        elif before[name].tobytes() != after[name].tobytes():
            apart = np.abs(before[name].astype(np.float64) - after[name].astype(np.float64)).max()
            yield Difference(name, f"differs by up to {apart:.3g}")


def metric_differences(base: Path, here: Path) -> Iterator[Difference]:
    """Columns of metrics.csv that are not equal as text, with their first row that is not; `sys/` aside."""
    before, after = read_columns(base / "metrics.csv"), read_columns(here / "metrics.csv")
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            yield Difference(name, f"only {'here' if name in after else 'in the base'}")
        elif len(before[name]) != len(after[name]):
            yield Difference(name, f"{len(before[name])} rows in the base, {len(after[name])} here")
        elif before[name] != after[name]:
            row = next(
                row for row, cells in enumerate(zip(before[name], after[name], strict=True)) if len({*cells}) > 1
            )
            yield Difference(name, f"row {row + 1}: {before[name][row]} in the base, {after[name][row]} here")


def read_columns(path: Path) -> dict[str, list[str]]:
    """The cells of a metrics.csv as they are written, by column."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise SystemExit(f"{path} holds no row, so there is nothing to compare")
    return {name: [row[name] for row in rows] for name in rows[0] if not name.startswith("sys/")}


if __name__ == "__main__":
    raise SystemExit(main())
