"""Start-up and memory as a user meets them: real commands, timed from the start of their process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from gymlab.bench.launch import WorkerFailure, worker_environment
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number

EXPERIMENT = "CartPole-v1:ppo"
MEMORY_STEPS = 20_000
HELP_GOAL = 1.0
UPDATE_GOAL = 5.0
MEMORY_GOAL = 600.0
POLL_SECONDS = 0.01


def command(*arguments: str) -> list[str]:
    """The command line of gymlab in this interpreter: what its script does, wherever that is installed."""
    return [sys.executable, "-c", "import sys; from gymlab.cli.main import main; sys.exit(main())", *arguments]


def measure(plan: Plan) -> Section:
    """Seconds to the help, seconds to the first update, peak memory of a training."""
    help_seconds, update_seconds, cpu_seconds, memory = [], [], [], []
    for repeat in range(plan.repeats):
        plan.say(f"start-up: {repeat + 1} of {plan.repeats}")
        help_seconds.append(watch(command("--help"), plan.timeout)["seconds"])
        with tempfile.TemporaryDirectory() as runs:
            trained = watch(training(runs), plan.timeout, runs=Path(runs))
        update_seconds.append(trained["first_update"])
        cpu_seconds.append(trained["first_update_cpu"])
        memory.append(trained["peak_mb"])
    checks = [
        Check("gymlab --help, seconds", statistics.median(help_seconds), HELP_GOAL, at_least=False),
        Check("gymlab train to first update, seconds", statistics.median(update_seconds), UPDATE_GOAL, at_least=False),
        Check("peak memory of a CartPole run, MB", statistics.median(memory), MEMORY_GOAL, at_least=False),
    ]
    named = zip(checks, (help_seconds, update_seconds, memory), strict=True)
    lines = [[check.name, number(check.value), f"{number(min(each))} to {number(max(each))}"] for check, each in named]
    table = Table(
        "Start-up and memory",
        ["figure", "median", "range"],
        lines,
        f"CPU time to the first update: {number(statistics.median(cpu_seconds))} s.",
    )
    data = {
        "help_seconds": statistics.median(help_seconds),
        "first_update_seconds": statistics.median(update_seconds),
        "first_update_cpu_seconds": statistics.median(cpu_seconds),
        "peak_memory_mb": statistics.median(memory),
        "repeats": {"help_seconds": help_seconds, "first_update_seconds": update_seconds, "peak_memory_mb": memory},
    }
    return Section("startup", [table], data, checks)


def training(runs: str) -> list[str]:
    """A short CartPole run, as anybody starts one."""
    return command("train", EXPERIMENT, "--quiet", "--max-env-steps", str(MEMORY_STEPS), "--runs-dir", runs)


def watch(arguments: Sequence[str], timeout: float, runs: Path | None = None) -> dict[str, Any]:
    """Run a command; its duration, its peak memory, and when its first row of metrics (after one update) was there."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = psutil.Popen(arguments, env=worker_environment(None), stdout=subprocess.DEVNULL, stderr=errors)
        peak, first_update, first_update_cpu = 0, None, None
        while process.poll() is None:
            elapsed = time.perf_counter() - started
            if elapsed > timeout:
                process.kill()
                process.wait()
                raise WorkerFailure(f"gymlab {' '.join(arguments[3:])}: not done within {timeout:.0f} s.")
            memory, cpu = _used(process)
            peak = max(peak, memory)
            if runs is not None and first_update is None and _has_row(runs):
                first_update, first_update_cpu = elapsed, cpu
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - started
        if process.returncode != 0:
            errors.seek(0)
            tail = "\n".join(errors.read().decode(errors="replace").strip().splitlines()[-5:])
            raise WorkerFailure(f"gymlab {' '.join(arguments[3:])} ended with code {process.returncode}:\n{tail}")
    if runs is not None and first_update is None:
        raise WorkerFailure(f"gymlab {' '.join(arguments[3:])} ended without a row in metrics.csv.")
    return {
        "seconds": seconds,
        "first_update": first_update,
        "first_update_cpu": first_update_cpu,
        "peak_mb": peak / 2**20,
    }


def _used(process: psutil.Popen) -> tuple[int, float]:
    """Resident bytes and CPU seconds of a process; nothing when it has just ended."""
    try:
        times = process.cpu_times()
        return process.memory_info().rss, times.user + times.system
    except psutil.NoSuchProcess:
        return 0, 0.0


def _has_row(runs: Path) -> bool:
    """Whether a run below has written its header and one row."""
    return any(file.read_bytes().count(b"\n") >= 2 for file in runs.glob("*/metrics.csv"))
