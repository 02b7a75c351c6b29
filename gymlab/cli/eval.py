"""Evaluate the agent of a run on fresh episodes that training never saw."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_env_kwargs, add_json, add_playing, add_plugins, add_runs_directory
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent

USAGE = "gymlab eval [REF] [options]"
EXAMPLES = """  gymlab eval                                  the newest run, 100 episodes
  gymlab eval @last/@best --episodes 1000      its best checkpoint
  gymlab eval my-run/epoch=13 --seed 7 --stochastic
  gymlab eval my-run --plugin my_environments
  gymlab eval my-run --env-kwargs config_path=my_maze.cfg
  gymlab eval my-run --json | jq .mean"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "reference",
        nargs="?",
        default="@last",
        metavar="REF",
        help="run or checkpoint: @last, ID, ID/@best, ID/epoch=13 or a run's directory (default: @last)",
    )
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="episodes to play (default: 100)")
    add_playing(parser)
    add_env_kwargs(parser)
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, play, and print mean, interval and what was played."""
    if arguments.episodes < 1:
        raise GymlabError(f"--episodes {arguments.episodes}: at least one episode is needed to say anything.")
    if arguments.seed < 0:
        raise GymlabError(f"--seed {arguments.seed}: a seed is 0 or more.")
    from gymlab.api import load, load_plugins
    from gymlab.cli.output import output_kept_clean, show_json

    with output_kept_clean(arguments.json):
        load_plugins(arguments.plugin)
        agent = load(arguments.reference, runs_dir=arguments.runs_dir, env_kwargs=arguments.env_kwargs)
        result = evaluate(agent, arguments.episodes, arguments.seed, arguments.deterministic)
    if arguments.json:
        show_json(result)
    else:
        _show(result)
    return 0


def evaluate(agent: Agent, episodes: int, seed: int, deterministic: bool | None) -> dict[str, Any]:
    """The evaluation in plain values: mean, ci95, n, min, max, and all that is needed to repeat it."""
    chosen = agent.config.eval_deterministic if deterministic is None else deterministic
    summary = agent.evaluate(episodes, seed=seed, deterministic=chosen).summary()
    threshold = solved_threshold(agent)
    return {
        **summary,
        "seed": seed,
        "deterministic": chosen,
        "env_id": agent.config.env_id,
        "checkpoint": str(agent.checkpoint.path) if agent.checkpoint else None,
        "threshold": threshold,
        "solved": None if threshold is None else summary["mean"] >= threshold,
    }


def solved_threshold(agent: Agent) -> float | None:
    """The return that means solved: the config's, else what the environment was registered with."""
    if agent.config.solved_threshold is not None:
        return agent.config.solved_threshold
    environment = agent.make_env()
    try:
        return environment.get_return_threshold()
    finally:
        environment.close()


def _show(result: dict[str, Any]) -> None:
    from rich.text import Text

    from gymlab.cli.output import screen, table
    from gymlab.metrics.statistics import Interval, format_number

    made = table(result["env_id"], "", "")
    made.show_header = False
    found = Interval.of_result(result)
    made.add_row("return", Text.assemble((str(found), "bold"), f"  {found.words}, n={found.n}" if found.n > 1 else ""))
    made.add_row("range", f"{format_number(result['min'])} to {format_number(result['max'])}")
    made.add_row("episode length", format_number(result["ep_len"]))
    for name, value in result["told"].items():
        made.add_row(name.removesuffix("/mean").replace("_", " "), format_number(value))
    made.add_row("actions", "deterministic" if result["deterministic"] else "sampled")
    made.add_row("seed", str(result["seed"]))
    made.add_row("checkpoint", result["checkpoint"])
    if result["threshold"] is not None:
        verdict = ("solved", "green") if result["solved"] else ("not solved", "yellow")
        made.add_row("threshold", Text.assemble(f"{format_number(result['threshold'])}: ", verdict))
    screen().print(made)
