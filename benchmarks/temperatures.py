"""The temperature experiment of World Models: controllers evolved in the dreams of one M at several temperatures, then in the real game.

    python -m benchmarks.temperatures RUN

RUN has learned V and M. From its last checkpoint a run for each temperature evolves a controller of its own; finished ones are not evolved again.
What each returns, in the dream and in the game, becomes a table and a picture.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymlab.engine.run import Run

ROOT = Path(__file__).parents[1]
TEMPERATURES = (0.1, 0.5, 1.0, 1.15, 1.3)
"""Those of the paper's table."""
ELITE = "train/controller/return/elite"


@dataclass(frozen=True)
class Outcome:
    """What the controller of one temperature returns."""

    temperature: float
    dream: float
    """Mean of the elite over its trials inside M."""
    real: float
    """Mean over the evaluation episodes of the final agent."""
    interval: tuple[float, float]
    """95%, of the real one; the range where the episodes are too few for one."""

    @classmethod
    def of(cls, run: Run, temperature: float) -> Outcome:
        """Read a finished run."""
        dream = next(value for value in reversed(run.metrics[ELITE]) if value is not None)
        low, high = run.result["ci95"] or (run.result["min"], run.result["max"])
        return cls(temperature, dream, run.result["mean"], (low, high))


def main() -> int:
    """Evolve what is missing, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", help="the run whose V and M are used")
    parser.add_argument("settings", nargs="*", metavar="name=value", help="settings of all, such as torch_threads=1")
    parser.add_argument("--temperatures", type=float, nargs="+", default=list(TEMPERATURES), metavar="T")
    parser.add_argument("--generations", type=int, default=40, help="of each temperature (default 40)")
    parser.add_argument("--episodes", type=int, default=50, help="of the real game, for each (default 50)")
    parser.add_argument("--collect", type=int, default=4000, help="steps in which first observations are looked for")
    parser.add_argument("--runs-dir", type=Path, default=ROOT / "runs" / "verify")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "world-models-temperatures.png")
    arguments = parser.parse_args()
    source, outcomes = Run(arguments.runs_dir / arguments.run), []
    for temperature in arguments.temperatures:
        run = Run(arguments.runs_dir / f"{source.id}-t{temperature:g}")
        if run.status != "finished":
            print(f"evolving at {temperature:g}", flush=True)
            subprocess.run(command(source, run, temperature, arguments), cwd=ROOT, check=True)
        outcomes.append(Outcome.of(run, temperature))
    print(table(outcomes))
    draw(outcomes, arguments.out, str(source.record["experiment"]))
    print(f"wrote {arguments.out}")
    return 0


def command(source: Run, run: Run, temperature: float, arguments: argparse.Namespace) -> list[str]:
    """What evolves a controller at a temperature."""
    settings = {
        "reuse_model": "true",
        "temperature": f"{temperature:g}",
        "generations": arguments.generations,
        "collect_env_steps": arguments.collect,
        "max_env_steps": arguments.collect,
        # The game is played at the end only.
        "eval_warmup_epochs": 1_000_000,
        "eval_episodes": arguments.episodes,
    }
    begin = [sys.executable, "-m", "gymlab", "train", str(source.record["experiment"])]
    places = ["--seed", str(source.record["seed"]), "--runs-dir", str(arguments.runs_dir), "--run-id", run.id]
    return [
        *begin,
        *places,
        *("--quiet", "--init-from-run", f"{source.id}/@last"),
        *(f"{name}={value}" for name, value in settings.items()),
        *arguments.settings,
    ]


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes in Markdown."""
    lines = ["| temperature | return in the dream | return in the game | 95% interval |", "|---|---|---|---|"]
    lines += [
        f"| {o.temperature:g} | {o.dream:.0f} | {o.real:.0f} | {o.interval[0]:.0f} to {o.interval[1]:.0f} |"
        for o in outcomes
    ]
    return "\n".join(lines)


def draw(outcomes: Sequence[Outcome], path: Path, title: str) -> None:
    """Both returns by temperature."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    x, real = [o.temperature for o in outcomes], [o.real for o in outcomes]
    axes.plot(x, [o.dream for o in outcomes], "C3o--", label="in the dream")
    axes.plot(x, real, "C0o-", label="in the game")
    axes.fill_between(x, [o.interval[0] for o in outcomes], [o.interval[1] for o in outcomes], color="C0", alpha=0.2)
    axes.set(xlabel="temperature of the dreams that the controller was evolved in", ylabel="return", title=title)
    axes.legend(loc="best")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
