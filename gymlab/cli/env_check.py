"""Test an environment before training on it, and say in words what is wrong and how to mend it.

Each check that runs code of the environment does so in a process of its own. The code is 1 when a check fails."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_plugins, at_least_one, split_words, take_files
from gymlab.errors import EnvironmentFailure, GymlabError

if TYPE_CHECKING:
    from rich.text import Text

    from gymlab.config.schema import Config
    from gymlab.envs.check import Finding

USAGE = "gymlab env check ENVIRONMENT[:VARIANT] [key=value ...] [options]"
EXAMPLES = """  gymlab env check CartPole-v1
  gymlab env check CartPole-v1:ppo_pixels           with the wrappers and image settings of a variant
  gymlab env check my_package.envs:Maze-v0          an environment of your own
  gymlab env check my_mazes.py:Maze-v0              and one in a file
  gymlab env check FrozenLake-v1 --env-kwargs is_slippery=false --steps 5000
  gymlab env check Pendulum-v1 max_episode_steps=50 --json"""

ANY_ALGORITHM = "ppo"
"""With an id alone the environment is made as `gymlab train ID --algo ppo` makes it."""
SEED = 0
HASH_SEED = "20011"
"""Of the fresh process: sets of text come in another order there."""
FRESH_TIMEOUT = 100.0
SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "dim")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="ENVIRONMENT key=value",
        help="an id, module:EnvId, FILE.py:EnvId or ENVIRONMENT:VARIANT; settings",
    )
    parser.add_argument("--steps", type=at_least_one, default=1000, metavar="N", help="random steps (default: 1000)")
    parser.add_argument(
        "--env-kwargs", action="append", default=[], metavar="key=value", help="argument of the environment; repeatable"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="a conf directory that lies on top of ./conf and ours")
    parser.add_argument("--print-trace", action="store_true", help=argparse.SUPPRESS)
    add_plugins(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check, and show each finding as it comes."""
    from rich.text import Text

    from gymlab.cli.output import output_kept_clean, screen, show_json
    from gymlab.engine.seeding import SeedTree
    from gymlab.envs.check import check_environment, fresh_trace

    with output_kept_clean():
        config = environment_config(arguments)
        if arguments.print_trace:
            trace = fresh_trace(config, SeedTree(SEED), arguments.steps)
    if arguments.print_trace:
        show_json(trace)
        return 0
    findings: list[Finding] = []
    console = screen()
    if not arguments.json:
        console.print(Text.assemble((config.env_id, "bold"), f" as in {config.project_id}:{config.variant}"))
    for finding in check_environment(
        config, SeedTree(SEED), arguments.steps, lambda: trace_of_fresh_process(arguments.argv)
    ):
        findings.append(finding)
        if not arguments.json:
            console.print(finding_line(finding, console.width))
    failures = sum(finding.state == "failed" for finding in findings)
    if arguments.json:
        show_json({"environment": config.env_id, "works": not failures, "findings": [asdict(one) for one in findings]})
    else:
        console.print(verdict(findings))
    return 1 if failures else 0


def environment_config(arguments: argparse.Namespace) -> Config:
    """The config of a variant, or of an id alone; what stands before a colon may be a module of the user's own."""
    from gymlab.api import load_plugins, resolve
    from gymlab.engine.secrets import take_secrets

    experiment, overrides = split_words(arguments.words)
    if experiment is None:
        raise GymlabError(f"Which environment? Usage: {USAGE}")
    (experiment, *overrides), files = take_files([experiment, *overrides])
    module = module_of(experiment, arguments.config_dir)
    load_plugins([*arguments.plugin, *files, *([module] if module else [])])
    names_variant = ":" in experiment.removeprefix(f"{module}:")
    config = resolve(
        experiment,
        algo=None if names_variant else ANY_ALGORITHM,
        overrides=overrides,
        config_dir=arguments.config_dir,
        env_kwargs=arguments.env_kwargs,
    ).config
    take_secrets(config)
    return config


def module_of(experiment: str, config_dir: str | None) -> str:
    """The module that `my_package.envs:Maze-v0` names, as a wish to import it; `mine:ppo` names a file, if there is one."""
    from gymlab.config.environment_files import Library, search_roots

    before, colon, _ = experiment.partition(":")
    if not colon or not all(part.isidentifier() for part in before.split(".")):
        return ""
    library = Library(search_roots(Path(config_dir) if config_dir else None), [])
    return before if next(library.matching(before), None) is None else ""


def trace_of_fresh_process(argv: list[str]) -> list[str]:
    """What the same command line gives in a new interpreter, where hashes and addresses are others."""
    command = [sys.executable, "-m", "gymlab", "env", "check", *argv, "--print-trace"]
    environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=FRESH_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"A fresh process did not answer within {FRESH_TIMEOUT:g} s.") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise EnvironmentFailure(f"A fresh process ended with code {done.returncode}: {lines[-1]}")
    return json.loads(done.stdout)


def finding_line(finding: Finding, width: int) -> Any:
    """One line of the table; the advice stands below it."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    sign, colour = SIGNS[finding.state]
    made = Table.grid(padding=(0, 1))
    made.add_column(width=1)
    made.add_column(width=12)
    made.add_column(max_width=max(20, width - 16))
    text = Text(finding.detail)
    if finding.advice:
        text.append(f"\n{finding.advice}", style=colour if finding.state == "failed" else "yellow")
    made.add_row(Text(sign, style=colour), Text(finding.check), text)
    return Padding(made, (0, 0, 0, 0))


def verdict(findings: list[Finding]) -> Text:
    """The last line."""
    from rich.text import Text

    counts = Counter(finding.state for finding in findings)
    looked_at = f"; {counts['warning']} to look at."
    if counts["failed"]:
        return Text.assemble((f"{counts['failed']} to be fixed before training", "red"), looked_at)
    if counts["warning"]:
        return Text.assemble(("It can be trained on", "green"), looked_at)
    return Text("It can be trained on.", style="green")
