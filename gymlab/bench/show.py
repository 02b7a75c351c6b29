"""What all benches share on the command line: --json, --markdown, --check, and a line that says what is measured."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, write_markdown


def comma_list(text: str) -> list[str]:
    """`a,b` as a list; nothing as an empty one."""
    return [word.strip() for word in text.split(",") if word.strip()]


def comma_integers(text: str) -> list[int]:
    """`8,64` as a list of integers."""
    return [int(word) for word in comma_list(text)]


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Options about where a report goes."""
    parser.add_argument("--json", action="store_true", help="print figures and ratios as JSON")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="also write the tables into this Markdown file")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a goal is missed")


def turn_arguments(parser: argparse.ArgumentParser, timed: str) -> None:
    """Options of a bench that times two ways by turns."""
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help=f"time of each {timed} (default 1)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    show_arguments(parser)


def run_turns(bench: str, measure: Callable[[Plan, int], Section], arguments: argparse.Namespace) -> int:
    """Run such a bench and print; 1 when `--check` is given and a goal was missed."""
    options = f"--repeats {arguments.repeats} --seconds {arguments.seconds:g} --threads {arguments.threads}"
    with status(quiet=arguments.json) as say:
        section = measure(Plan(repeats=arguments.repeats, seconds=arguments.seconds, say=say), arguments.threads)
    return show(BenchReport(bench, f"gymlab bench {bench} {options}", [section]), arguments)


@contextlib.contextmanager
def status(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line on the error stream that says what is being measured."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield console.print
        return
    with console.status("starting") as line:
        yield line.update


def show(report: BenchReport, arguments: argparse.Namespace) -> int:
    """Print the report as asked for; the exit code."""
    from rich.console import Console

    if arguments.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        report.print(Console())
    if arguments.markdown is not None:
        write_markdown(arguments.markdown, report)
    return 1 if arguments.check and not all(check.met for check in report.checks) else 0
