"""Train an experiment: its YAML, your settings on top, and one run directory that holds everything."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_experiment, add_json, add_runs_directory, resolve_keywords
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.run import Run

USAGE = "gymlab train [EXPERIMENT] [key=value ...] [options]"
EXAMPLES = """  gymlab train                                          Bandit-v0:ppo, done in seconds
  gymlab train CartPole-v1:ppo                          a shipped experiment
  gymlab train CartPole-v1:ppo n_envs=16 policy_lr=lin_1e-3 --max-env-steps 50_000
  gymlab train Acrobot-v1 --algo ppo                    any Gymnasium id, no YAML needed
  gymlab train CartPole-v1:ppo --seeds 0-4 --jobs 2     five seeds, two at a time, with a table at the end
  gymlab train CartPole-v1:ppo --cfg job                print what would be trained, as YAML
  gymlab train CartPole-v1:ppo --cfg job --sources      and every file that was read for it
  gymlab train CartPole-v1:ppo --init-from-run @last/@best
  gymlab train --resume @last max_env_steps=200_000     go on with a run, here with a longer budget
  gymlab train my_package.envs:Maze-v0 --algo ppo       an environment of your own
  gymlab train my_mazes.py:Maze-v0 --algo ppo           and one in a file
  gymlab train --list-envs cart                         what can be trained"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_experiment(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print the report at the end only")
    parser.add_argument("--seeds", metavar="LIST", help="several seeds, each a run of its own: 0-4,7")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="with --seeds: how many train at the same time (default: 1)"
    )
    parser.add_argument(
        "--run-id", metavar="ID", help="name of the run's directory (default: made from experiment, seed and time)"
    )
    parser.add_argument(
        "--init-from-run", metavar="REF", help="begin with the parameters of a run: ID, ID/@best, ID/epoch=13, @last"
    )
    parser.add_argument(
        "--init-parts", metavar="LIST", help="with --init-from-run: only these parts of it: tokenizer,world_model"
    )
    parser.add_argument(
        "--resume", metavar="REF", help="go on with a run, exactly from its last checkpoint: ID, ID/epoch=13, @last"
    )
    parser.add_argument("--epoch", metavar="N", help="with --resume: which checkpoint: 13, @best, @last")
    parser.add_argument(
        "--list-envs", nargs="?", const="", metavar="WORD", help="list environments and variants, and exit"
    )
    parser.add_argument("--cfg", choices=["job"], help="print the resolved config as YAML, and exit")
    parser.add_argument(
        "--sources", action="store_true", help="with --cfg job: also every file that was read to find it"
    )
    parser.add_argument("--recorded-command", help=argparse.SUPPRESS)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train one run or several seeds, or only show what would be."""
    if arguments.list_envs is not None:
        from gymlab.cli.list import show_environments

        return show_environments(arguments.list_envs, arguments.config_dir, as_json=arguments.json)
    if arguments.jobs is not None and arguments.seeds is None:
        raise GymlabError(
            "--jobs says how many seeds train at the same time; give them with --seeds, e.g. --seeds 0-4 --jobs 2."
        )
    if arguments.init_parts and not arguments.init_from_run:
        raise GymlabError(
            "--init-parts says what to take of a run; name it with --init-from-run, e.g. --init-from-run @last."
        )
    if arguments.epoch is not None and arguments.resume is None:
        raise GymlabError(
            "--epoch says from which checkpoint a run goes on; name the run with --resume, e.g. --resume @last."
        )
    if arguments.sources and not arguments.cfg:
        raise GymlabError("--sources says which files a config came from; print it with --cfg job.")
    if arguments.resume is not None:
        return _resume(arguments)
    if arguments.cfg:
        return _show_config(arguments)
    if arguments.seeds is not None:
        from gymlab.cli.seeds import train_seeds

        return train_seeds(arguments, command_line(arguments))
    return _train(arguments)


def train_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the experiment resolves from, with the settings that have an option of their own."""
    keywords = resolve_keywords(arguments)
    if arguments.quiet:
        keywords["quiet"] = True
    if arguments.init_from_run:
        keywords["init_from_run"] = arguments.init_from_run
    if arguments.init_parts:
        keywords["init_parts"] = arguments.init_parts.split(",")
    return keywords


def command_line(arguments: argparse.Namespace) -> str:
    """What the user typed, without secrets."""
    from gymlab.metrics.redact import redact

    return arguments.recorded_command or shlex.join(redact(["gymlab", "train", *arguments.argv]))


def run_summary(run: Run) -> dict[str, Any]:
    """A run in plain values: what `--json` prints of it."""
    record = run.record
    shown = ("experiment", "seed", "reason", "best_return", "seconds", "command", "repeat", "versions")
    counters = {name: (record.get("counters") or {}).get(name) for name in ("env_steps", "updates", "episodes")}
    summary = {"run": run.id, "dir": str(run.dir), "status": run.status}
    return summary | {key: record.get(key) for key in shown} | {"result": run.result or None} | counters


def _show_config(arguments: argparse.Namespace) -> int:
    from gymlab.api import resolve
    from gymlab.cli.output import show_json, show_notices, show_text
    from gymlab.config import dump, to_yaml

    loaded = resolve(**train_keywords(arguments))
    show_notices(loaded.notices)
    if arguments.json:
        config = dump(loaded.config)
        show_json({"config": config, "sources": loaded.sources, "read": loaded.read} if arguments.sources else config)
        return 0
    if arguments.sources:
        # Comments: what is printed stays a config.
        show_text("\n".join(f"# from {path}" for path in loaded.sources or ["no file"]))
        show_text("\n".join(["# read to find those:", *(f"#   {path}" for path in loaded.read or ["nothing else"])]))
    show_text(to_yaml(loaded.config))
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from gymlab.api import resume
    from gymlab.cli.output import output_kept_clean, show_json

    keywords = train_keywords(arguments)
    refused = [name for name in ("experiment", "algo", "config_dir") if keywords.pop(name)]
    refused += [
        f"--{name.replace('_', '-')}"
        for name in ("seeds", "run_id", "init_from_run", "init_parts")
        if getattr(arguments, name)
    ]
    if refused:
        raise GymlabError(f"--resume goes on with a run as it is: leave out {', '.join(refused)}.")
    with output_kept_clean(arguments.json):
        finished = resume(arguments.resume, epoch=arguments.epoch, runs_dir=arguments.runs_dir, **keywords)
    if arguments.json:
        show_json(run_summary(finished))
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from gymlab.api import train
    from gymlab.cli.output import output_kept_clean, show_json

    with output_kept_clean(arguments.json):
        finished = train(
            **train_keywords(arguments),
            runs_dir=arguments.runs_dir,
            run_id=arguments.run_id,
            command=command_line(arguments),
        )
    if arguments.json:
        show_json(run_summary(finished))
    return 0
