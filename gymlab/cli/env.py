"""Test an environment before training on it."""

from __future__ import annotations

import argparse

from gymlab.errors import GymlabError, did_you_mean

COMMANDS = ("check",)
USAGE = "gymlab env check ENVIRONMENT[:VARIANT] [options]"
EXAMPLES = """  gymlab env check CartPole-v1
  gymlab env check --help                        what is checked"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("words", nargs="*", metavar="check ...", help="what to do with an environment")


def run(arguments: argparse.Namespace) -> int:
    """Only reached without one of its commands."""
    given = arguments.words[0] if arguments.words else ""
    near = did_you_mean(given, COMMANDS)
    raise GymlabError(f"Say what to do with the environment. {near}".rstrip() + f"\nUsage: {USAGE}")
