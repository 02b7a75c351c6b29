"""Record episodes of an agent as a Minari dataset: observations, actions, rewards and endings, to learn from offline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gymlab.cli.arguments import (
    add_best_reference,
    add_env_kwargs,
    add_json,
    add_playing,
    add_plugins,
    add_runs_directory,
    at_least_one,
)
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.demonstrations import Recording

USAGE = "gymlab record [REF] [options]"
EXAMPLES = """  gymlab record                                       50 episodes of the newest run's best agent, in demos/
  gymlab record my-run/@best --episodes 200 --out demos/ --dataset-id cartpole/expert-v0
  gymlab record @last --stochastic --seed 7 --overwrite
  MINARI_DATASETS_PATH=demos python -c 'import minari; print(minari.load_dataset("cartpole/expert-v0"))'"""

FORMATS = ("minari",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_best_reference(parser)
    parser.add_argument("--episodes", type=at_least_one, default=50, metavar="N", help="whole episodes (default: 50)")
    parser.add_argument(
        "--out", type=Path, default=Path("demos"), metavar="DIR", help="folder of datasets (default: demos)"
    )
    parser.add_argument(
        "--dataset-id", metavar="ID", help="name and version: cartpole/expert-v0 (default: environment/algorithm-v0)"
    )
    parser.add_argument("--format", choices=FORMATS, default="minari", help="minari (HDF5)")
    parser.add_argument(
        "--observations",
        choices=("own", "agent"),
        default="own",
        help="the environment's own (default), or what wrappers made of them for the agent: stacked, resized, flattened",
    )
    add_playing(parser)
    parser.add_argument(
        "--step-limit",
        type=at_least_one,
        metavar="N",
        help="an episode longer than N steps is an error (default: the run's eval_step_limit, else 100,000)",
    )
    add_env_kwargs(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a dataset of the same id")
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, play, write, and say what there is now."""
    if arguments.seed < 0:
        raise GymlabError(f"--seed {arguments.seed}: a seed is 0 or more.")
    from gymlab.api import load_plugins
    from gymlab.cli.output import output_kept_clean, progress, show_json
    from gymlab.engine.agent import load_best
    from gymlab.engine.demonstrations import default_dataset_id, record

    with output_kept_clean(arguments.json):
        load_plugins(arguments.plugin)
        _, agent = load_best(arguments.reference, runs_dir=arguments.runs_dir, env_kwargs=arguments.env_kwargs)
        deterministic = agent.config.eval_deterministic if arguments.deterministic is None else arguments.deterministic
        try:
            with progress("recording", arguments.episodes, shown=not arguments.json) as advance:
                made = record(
                    agent,
                    arguments.out,
                    arguments.dataset_id or default_dataset_id(agent),
                    episodes=arguments.episodes,
                    seed=arguments.seed,
                    deterministic=deterministic,
                    observations=arguments.observations,
                    overwrite=arguments.overwrite,
                    step_limit=arguments.step_limit,
                    after_episode=advance,
                )
        except OSError as error:
            raise GymlabError(f"Cannot write to {arguments.out}: {error}. Give another folder with --out.") from error
    if arguments.json:
        show_json({**as_json(made), "seed": arguments.seed, "deterministic": deterministic})
    else:
        _show(made, deterministic, arguments.seed)
    return 0


def as_json(made: Recording) -> dict[str, object]:
    """A dataset in plain values."""
    return {
        "dataset_id": made.dataset_id,
        "root": made.root,
        "path": made.path,
        "episodes": made.episodes,
        "steps": made.steps,
        "returns": made.returns,
        "mean_return": sum(made.returns) / len(made.returns),
    }


def _show(made: Recording, deterministic: bool, seed: int) -> None:
    from gymlab.cli.output import bold, screen, size, table
    from gymlab.engine.registry import directory_size
    from gymlab.metrics.statistics import estimate

    shown = table(made.dataset_id, "", "")
    shown.show_header = False
    shown.add_row("episodes", f"{made.episodes:,} ({made.steps:,} steps)")
    shown.add_row("return", bold(str(estimate(made.returns, episodes=True))))
    shown.add_row("actions", f"{'deterministic' if deterministic else 'sampled'}, seed {seed}")
    shown.add_row("dataset", f"{made.path} ({size(directory_size(made.path))})")
    console = screen()
    console.print(shown)
    console.print(
        f"\nMINARI_DATASETS_PATH={made.root} python -c 'import minari; minari.load_dataset(\"{made.dataset_id}\")'",
        style="dim",
        soft_wrap=True,
    )
