"""Starting worker processes in a clean environment, and keeping cores busy on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from gymlab.bench.settings import Contender, Setting
from gymlab.errors import GymlabError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables of the caller that would change what a library does by default."""


class WorkerFailure(GymlabError):
    """A worker process that ended without an answer."""


def worker_environment(threads: int | None) -> dict[str, str]:
    """The caller's environment without its thread settings; with `threads`, numeric libraries are given that many."""
    environment = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    if threads is not None:
        environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        environment |= {"OPENBLAS_NUM_THREADS": str(threads)}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def run_worker(job: dict[str, Any], timeout: float, command: list[str] | None = None) -> dict[str, Any]:
    """Run one job in a fresh process and give its answer; `command` starts a worker that is not gymlab's own."""
    command = command or [sys.executable, "-m", "gymlab.bench.worker", json.dumps(job)]
    what = f"{job['task']} with {job.get('library', 'gymlab')}"
    with subprocess.Popen(
        command,
        env=worker_environment(job["threads"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise WorkerFailure(f"{what}: no answer within {timeout:g} s; the process was ended.") from error
        finally:
            end_group(process)
    if process.returncode != 0:
        tail = "\n".join(errors.strip().splitlines()[-5:])
        raise WorkerFailure(f"{what}: the process ended with code {process.returncode}:\n{tail}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def end_group(process: subprocess.Popen[str]) -> None:
    """End a process that leads a session of its own, with what it started: workers of environments may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def training_job(
    contender: Contender, setting: Setting, env_steps: int, seed: int, max_seconds: float | None = None
) -> dict[str, Any]:
    """A job that measures the speed of a contender. `max_seconds` may cut a peer short, which still gives its rate."""
    return {
        "task": "train",
        "library": contender.library,
        "threads": contender.threads,
        "options": contender.options,
        "setting": setting.to_dict(),
        "env_steps": env_steps,
        "seed": seed,
        "max_seconds": max_seconds,
    }


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep `count` processes spinning while the block runs."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()
