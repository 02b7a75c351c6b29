"""`gymlab COMMAND ...`: finds the command's module, imports that one only, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from gymlab.cli.arguments import EXAMPLES_FORMATTER, Parser
from gymlab.errors import GymlabError, Unregistered, did_you_mean

COMMANDS = {
    "train": "train an experiment, or several seeds of it",
    "repeat": "train a run anew, and say whether the same came out",
    "set": "change hyperparameters of a run while it trains",
    "eval": "evaluate the agent of a run on fresh episodes",
    "play": "watch the agent of a run play in a window, or play yourself; tables and videos",
    "record": "episodes of an agent as a Minari dataset",
    "compare": "groups of runs held against each other: table, picture, CSV",
    "inspect": "look at runs, learning curves, episodes and agents in the browser",
    "runs": "list, show, prune and restore runs",
    "list": "environments with their variants, algorithms",
    "describe": "what a training would do, before it does it; the reference of all settings",
    "report": "write and show the report of a run, or a results table over many",
    "env": "test an environment before training on it: `env check`",
    "smoke": "train every shipped experiment briefly: PASS, FAIL or SKIP",
    "doctor": "what is installed, what is missing, and the pip line for it",
    "bench": "measure speed, alone and against other libraries",
}
"""Each command is the module of its name in `gymlab.cli`, imported when it is called. One that has commands of its own
(`COMMANDS`) beside what it does itself has a module for each: `gymlab runs prune` is `runs_prune`."""

DONE, FAILED, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141

EXIT_CODES = """exit codes:
  0    done
  1    an error inside gymlab or an environment (with a traceback), a seed of several that failed, or
       a repetition that differs
  2    something you can put right: the message names it and the fix
  130  interrupted by Ctrl-C (a training alone saves itself on Ctrl-C or SIGTERM and ends with 0)
  141  the program that read the output has gone"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors that are not the user's propagate."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _guard_terminal()
    try:
        code = dispatch(arguments)
        sys.stdout.flush()
        return code
    except GymlabError as error:
        from gymlab.cli.output import show_error

        _tell_program(arguments, error, BAD_INPUT)
        show_error(str(error))
        return BAD_INPUT
    except KeyboardInterrupt as error:
        _tell_program(arguments, error, INTERRUPTED)
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        _tell_program(arguments, error, FAILED)
        raise


def _tell_program(arguments: list[str], error: BaseException, code: int) -> None:
    """With `--json` an error is JSON too: what it says, its kind, and the exit code."""
    if "--json" not in arguments:
        return
    from gymlab.cli.output import show_json
    from gymlab.metrics.redact import redact_text

    told = redact_text(str(error)) or type(error).__name__
    show_json({"error": told, "kind": type(error).__name__, "code": code})


def _guard_terminal() -> None:
    """Warnings and tracebacks may hold text of a run or of an environment: none of it reaches the terminal as it is."""
    import logging

    from gymlab.metrics.terminal import CleanFormatter, print_traceback

    sys.excepthook = print_traceback
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(CleanFormatter())


def dispatch(arguments: list[str]) -> int:
    """Hand the arguments to the command that the first one names."""
    if not arguments or arguments[0].startswith("-"):
        parser = top_level_parser()
        parser.parse_args(arguments)
        parser.print_help()
        return DONE
    name, command, parser, rest = find_command(arguments)
    parsed = parser.parse(rest)
    parsed.argv = rest
    named = parser.runs_in(parsed)
    if named and name not in ("play", "inspect"):
        # What these two are given may also be an environment, or a directory of runs.
        from gymlab.cli.named_runs import look_up

        look_up(named, getattr(parsed, "runs_dir", None))
    try:
        code: int = command.run(parsed)
    except Unregistered as error:
        from gymlab.cli.named_runs import advice

        raise Unregistered(
            f"{error}{advice(parsed, parser.runs_meant(parsed), ['gymlab', *name.split(), *rest])}"
        ) from error
    return code


def find_command(arguments: list[str]) -> tuple[str, Any, Parser, list[str]]:
    """The command that the first words name: its name, module and parser, and the words that are left for it."""
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise GymlabError(
            f"Unknown command {name!r}. {did_you_mean(name, COMMANDS)}\nCommands: {', '.join(COMMANDS)}. "
            "`gymlab --help` says what they do."
        )
    command = importlib.import_module(f"gymlab.cli.{name}")
    if rest and rest[0] in getattr(command, "COMMANDS", ()):
        command = importlib.import_module(f"gymlab.cli.{name}_{rest[0]}")
        name, rest = f"{name} {rest[0]}", rest[1:]
    parser = Parser(
        prog=f"gymlab {name}",
        usage=getattr(command, "USAGE", None),
        description=command.__doc__,
        epilog="examples:\n" + command.EXAMPLES,
        formatter_class=EXAMPLES_FORMATTER,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    parser.accept_run_id()
    return name, command, parser, parser.plain_options(rest)


def top_level_parser() -> Parser:
    """The parser of `gymlab --help` and `gymlab --version`."""
    from gymlab import __version__

    listing = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="gymlab",
        usage="gymlab COMMAND ...",
        description="One command trains any agent on any environment: gymlab train CartPole-v1:ppo\n\n"
        f"commands:\n{listing}\n\n`gymlab COMMAND --help` explains a command with examples.",
        epilog=EXIT_CODES,
        formatter_class=EXAMPLES_FORMATTER,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gymlab {__version__}")
    return parser
