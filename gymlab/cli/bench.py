"""Measure speed: of the parts alone, and of whole trainings side by side with other libraries."""

from __future__ import annotations

import argparse

from gymlab.bench import BENCHES, load_bench

EXAMPLES = """  gymlab bench ppo                              against every peer that is installed
  gymlab bench ppo --json > bench.json
  gymlab bench ppo --markdown docs/benchmarks.md
  gymlab bench envs                             vector environments alone
  gymlab bench collect --section workers        slow environments: workers, and halves by turns
  gymlab bench loader                           minibatches out of the buffer alone
  gymlab bench dreamer --threads 2              an update of DreamerV3 beside sheeprl's
  gymlab bench tdmpc --peer-source tdmpc2       plans and updates of TD-MPC2 beside its authors'
  gymlab bench dreams                           World Models' populations in dreams, at once and one by one
  gymlab bench delta_iris --peer-source iris    updates of Δ-IRIS beside its authors', dreams with a cache and without
  gymlab bench convolutions                     3x3 convolutions by gymlab's kernel and by torch"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a command for each bench, with that bench's own options."""
    parser.set_defaults(show_help=parser.print_help, bench=None)
    benches = parser.add_subparsers(dest="bench", metavar="NAME", title="benches")
    for name in BENCHES:
        module = load_bench(name)
        module.add_arguments(benches.add_parser(name, help=module.HELP, description=module.__doc__, allow_abbrev=False))


def run(arguments: argparse.Namespace) -> int:
    """Run the bench, or say which there are."""
    if arguments.bench is None:
        arguments.show_help()
        return 0
    return int(load_bench(arguments.bench).run_command(arguments))
