"""A fresh process that measures one thing: `python -m gymlab.bench.worker JOB`, where JOB and the answer are JSON.

Whatever libraries print goes to the error stream, so that the answer stands alone on the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from gymlab.bench.measure import rate_of
from gymlab.bench.peers import load_peer
from gymlab.bench.settings import Setting


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Speed of a training: steps a second after the warm-up."""
    marks = load_peer(job["library"]).train(
        Setting(**job["setting"]), job["env_steps"], job["seed"], job["options"], job["max_seconds"]
    )
    rate = rate_of(marks)
    return {
        "steps_per_second": rate.per_second,
        "steps_per_cpu_second": rate.per_cpu_second,
        "env_steps": rate.env_steps,
        "seconds": rate.wall,
        "cpu_seconds": rate.cpu,
    }


def threshold(job: dict[str, Any]) -> dict[str, Any]:
    """Time from the start of the training loop until the newest episodes pass a threshold."""
    reached = load_peer(job["library"]).time_to_threshold(
        Setting(**job["setting"]), job["env_steps"], job["seed"], job["options"], job["threshold"], job["window"]
    )
    if reached is None:
        return {"reached": False}
    seconds, env_steps = reached
    return {"reached": True, "seconds": seconds, "env_steps": env_steps}


def parts(job: dict[str, Any]) -> dict[str, Any]:
    """gymlab's own parts, each alone."""
    from gymlab.bench.parts import time_parts

    return time_parts(Setting(**job["setting"]), job["seed"], job["options"], job["seconds"], job["measure"])


def overhead(job: dict[str, Any]) -> dict[str, Any]:
    """Where the time of a training goes."""
    from gymlab.bench.overhead import time_outside

    return time_outside(Setting(**job["setting"]), job["seed"], job["options"], job["env_steps"])


def steps(job: dict[str, Any]) -> dict[str, Any]:
    """Step rate of a vector environment."""
    from gymlab.bench.step_rates import time_steps

    return time_steps(job["env_id"], job["num_envs"], job["backend"], job["seed"], job["seconds"])


def race(job: dict[str, Any]) -> dict[str, Any]:
    """Step rates of a native environment and of Gymnasium's, turn by turn."""
    from gymlab.bench.step_rates import race as take_turns

    return dict(take_turns(job["env_id"], job["num_envs"], job["seed"], job["seconds"], job["repeats"]))


def batches(job: dict[str, Any]) -> dict[str, Any]:
    """Rate of minibatches out of a buffer."""
    from gymlab.bench.batches import time_batches

    sizes = (job["n_envs"], job["n_steps"], job["batch_size"])
    return time_batches(*sizes, job["shape"], job["dtype"], job["seed"], job["seconds"])


def ways(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a row in every way that workers offer, turn by turn."""
    from gymlab.bench.paced import time_ways

    kind = (job["num_envs"], job["milliseconds"], job["waits"], job["model_id"])
    return dict(time_ways(*kind, job["seed"], job["repeats"]))


def dreamer(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds and memory of a DreamerV3 update."""
    from gymlab.bench.dreamer_updates import time_updates

    return time_updates(job)


def tdmpc(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a TD-MPC2 plan and update."""
    from gymlab.bench.tdmpc_steps import time_steps

    return time_steps(job)


def dreams(job: dict[str, Any]) -> dict[str, Any]:
    """Dreamt steps a second, one by one and at once."""
    from gymlab.bench.dream_rates import time_dreams

    return time_dreams(job)


def delta_iris(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of an update of each component of Δ-IRIS."""
    from gymlab.bench.delta_iris_updates import time_updates

    return time_updates(job)


def delta_iris_dreams(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of dreams of Δ-IRIS, with a cache and without."""
    from gymlab.bench.delta_iris_dreams import time_dreams

    return time_dreams(job)


def convolutions(job: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of a 3x3 convolution, by torch and by gymlab's kernel."""
    from gymlab.bench.convolution_times import time_layer

    return dict(time_layer(job))


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "train": train,
    "threshold": threshold,
    "parts": parts,
    "overhead": overhead,
    "steps": steps,
    "race": race,
    "batches": batches,
    "ways": ways,
    "dreamer": dreamer,
    "tdmpc": tdmpc,
    "dreams": dreams,
    "delta_iris": delta_iris,
    "delta_iris_dreams": delta_iris_dreams,
    "convolutions": convolutions,
}


def set_threads(threads: int | None) -> None:
    """Give torch a number of threads; None leaves it as it comes. A process that needs no torch is left without it."""
    if threads is None:
        return
    import torch

    torch.set_num_threads(threads)


def main(arguments: list[str] | None = None) -> int:
    """Do the job given as the only argument and print its answer."""
    job = json.loads((sys.argv[1:] if arguments is None else arguments)[0])
    if job.get("library", "gymlab") != "gymlab":
        # Importing gymlab chose how OpenMP waits; a peer is to be as it is without gymlab.
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            os.environ.pop(name, None)
    with contextlib.redirect_stdout(sys.stderr):
        set_threads(job["threads"])
        answer = TASKS[job["task"]](job)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
