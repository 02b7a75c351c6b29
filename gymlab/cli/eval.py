"""Evaluate the agent of a run on fresh episodes that training never saw, or on those of its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import (
    add_best_reference,
    add_env_kwargs,
    add_json,
    add_limits,
    add_playing,
    add_plugins,
    add_runs_directory,
)
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent
    from gymlab.engine.evaluation import Limits
    from gymlab.engine.run import Run

USAGE = "gymlab eval [REF] [options]"
EXAMPLES = """  gymlab eval                                  the newest run's best agent, 100 episodes
  gymlab eval @last/@last --episodes 1000      its last checkpoint
  gymlab eval my-run/epoch=13 --seed 7 --stochastic
  gymlab eval my-run --stream test             the episodes of its report again: the same number
  gymlab eval my-run --step-limit 5000 --time-limit 60
  gymlab eval my-run --plugin my_environments
  gymlab eval my-run --env-kwargs config_path=my_maze.cfg
  gymlab eval my-run --json | jq .mean"""

EPISODES = 100
COMPARED = ("mean", "min", "max", "n", "ep_len")
"""What a report keeps of its episodes, to the bit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_best_reference(parser)
    parser.add_argument("--episodes", type=int, metavar="N", help=f"episodes to play (default: {EPISODES})")
    parser.add_argument(
        "--stream",
        choices=("fresh", "test"),
        default="fresh",
        help="fresh: episodes of --seed (default); test: those of the run's report again, by its last checkpoint unless "
        "one is named",
    )
    add_playing(parser)
    parser.set_defaults(seed=None)
    add_limits(parser)
    add_env_kwargs(parser)
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, play, and print mean, interval and what was played."""
    _check(arguments)
    from gymlab.api import load_plugins
    from gymlab.cli.output import output_kept_clean, progress, show_json
    from gymlab.engine.agent import Agent, load_best
    from gymlab.engine.run import find_run, runs_directory

    with output_kept_clean(arguments.json):
        load_plugins(arguments.plugin)
        reported = arguments.stream == "test"
        if reported:
            found, which = find_run(arguments.reference, runs_directory(arguments.runs_dir))
            agent = Agent.from_run(found, which, arguments.env_kwargs)
        else:
            found, agent = load_best(arguments.reference, runs_dir=arguments.runs_dir, env_kwargs=arguments.env_kwargs)
        from gymlab.engine.evaluation import Limits

        episodes = agent.config.eval_episodes if reported else arguments.episodes or EPISODES
        limits = Limits.of(agent.config, steps=arguments.step_limit, seconds=arguments.time_limit)
        with progress("evaluating", episodes, shown=not arguments.json) as advance:
            if reported:
                result = evaluate_as_reported(found, agent, limits, advance)
            else:
                result = evaluate(agent, episodes, arguments.seed or 0, arguments.deterministic, limits, advance)
    if arguments.json:
        show_json(result)
    else:
        _show(result)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.episodes is not None and arguments.episodes < 1:
        raise GymlabError(f"--episodes {arguments.episodes}: at least one episode is needed to say anything.")
    if arguments.seed is not None and arguments.seed < 0:
        raise GymlabError(f"--seed {arguments.seed}: a seed is 0 or more.")
    if arguments.stream == "test":
        given = {
            "--episodes": arguments.episodes,
            "--seed": arguments.seed,
            "--deterministic, --stochastic": arguments.deterministic,
        }
        refused = [name for name, value in given.items() if value is not None]
        if refused:
            raise GymlabError(f"--stream test plays what the run's report did: leave out {', '.join(refused)}.")


def evaluate(
    agent: Agent,
    episodes: int,
    seed: int,
    deterministic: bool | None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The evaluation in plain values: mean, ci95, n, min, max, what may be said of it, and all that is needed to repeat it."""
    chosen = agent.config.eval_deterministic if deterministic is None else deterministic
    found = agent.evaluate(episodes, seed=seed, deterministic=chosen, limits=limits, progress=progress)
    about = {"stream": "fresh", "seed": seed, "deterministic": chosen}
    return found.judged(agent.config, solved_threshold(agent)) | about | _played(agent)


def evaluate_as_reported(
    run: Run, agent: Agent, limits: Limits, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """The same for the episodes of the run's report, and whether the report says the same of them."""
    found = agent.evaluate_as_reported(run.record.get("backend"), limits=limits, progress=progress)
    result = found.judged(agent.config, solved_threshold(agent))
    reported = {name: run.result.get(name) for name in COMPARED}
    told = {**reported, "same": all(result[name] == value for name, value in reported.items())} if run.result else None
    about = {"stream": "test", "seed": agent.config.seed, "deterministic": agent.config.eval_deterministic}
    return result | about | _played(agent) | {"report": told}


def _played(agent: Agent) -> dict[str, Any]:
    from gymlab.engine.registry import links_to

    path = agent.checkpoint.path if agent.checkpoint else None
    return {
        "env_id": agent.config.env_id,
        "checkpoint": path,
        "checkpoint_is": [] if path is None else list(links_to(path)),
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

    from gymlab.cli.output import checkpoint_text, screen, table
    from gymlab.metrics.results import beside_text, return_text
    from gymlab.metrics.statistics import format_number

    made = table(result["env_id"], "", "")
    made.show_header = False
    made.add_row("return", Text.assemble((return_text(result), "bold"), f"  {beside_text(result)}"))
    if result["n"]:
        made.add_row("range", f"{format_number(result['min'])} to {format_number(result['max'])}")
        made.add_row("episode length", format_number(result["ep_len"]))
    for name, value in result["told"].items():
        made.add_row(name.removesuffix("/mean").replace("_", " "), format_number(value))
    made.add_row("actions", "deterministic" if result["deterministic"] else "sampled")
    made.add_row("seed", f"{result['seed']}, stream test" if result["stream"] == "test" else str(result["seed"]))
    made.add_row("checkpoint", checkpoint_text(result["checkpoint"]))
    if result["threshold"] is not None:
        colour = {True: "green", False: "yellow", None: "cyan"}[result["solved"]]
        verdict = result["verdict"].partition(" (")[0]
        made.add_row("threshold", Text.assemble(f"{format_number(result['threshold'])}: ", (verdict, colour)))
    if result["stream"] == "test":
        made.add_row("report", _told(result))
    screen().print(made)


def _told(result: dict[str, Any]) -> str:
    """Whether the run's report says the same."""
    from gymlab.metrics.results import return_text

    report = result["report"]
    if report is None:
        return "the run has none"
    said = "no return" if report["mean"] is None else return_text({"mean": report["mean"]})
    if report["same"]:
        return f"{said}: the same to the bit"
    if "last" not in result["checkpoint_is"]:
        return f"{said}, of the last checkpoint: this is another"
    return f"{said}: not the same; versions, device or machine may differ, or an earlier release made the report"
