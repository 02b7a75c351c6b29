"""Metrics of a run, one above the other over its updates, for a page of the documentation.

python -m benchmarks.curves RUN world_model/psnr world_model/codebook_entropy --out docs/images/words.png
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gymlab.engine.run import Run

ROOT = Path(__file__).parents[1]
UPDATES = "train/cnt/updates"


def main() -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run")
    parser.add_argument("metrics", nargs="+", help="names without train/")
    parser.add_argument("--runs-dir", type=Path, default=ROOT / "runs" / "verify")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    draw(Run(arguments.runs_dir / arguments.run), arguments.metrics, arguments.out)
    print(f"wrote {arguments.out}")
    return 0


def draw(run: Run, names: list[str], path: Path) -> None:
    """One panel for each metric; rows in which it was not measured are left out."""
    from matplotlib.figure import Figure

    metrics = run.metrics
    missing = [name for name in names if f"train/{name}" not in metrics]
    if missing:
        raise SystemExit(f"{run.id} has no {', '.join(missing)}; its metrics.csv names those that it has.")
    figure = Figure(figsize=(7, 1.8 * len(names) + 0.6), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        rows = zip(metrics[UPDATES], metrics[f"train/{name}"], strict=True)
        points = [(updates, value) for updates, value in rows if updates is not None and value is not None]
        axes.plot(*zip(*points, strict=True), "o-", markersize=3)
        axes.set_ylabel(name.rpartition("/")[2])
        axes.grid(alpha=0.3)
    panels[0].set_title(str(run.record["experiment"]))
    panels[-1].set_xlabel("updates of all components")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
