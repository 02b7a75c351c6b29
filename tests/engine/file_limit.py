"""Run by test_faults.py: trains until a file would grow beyond the limit of its process (`ulimit -f`), and goes on."""

import resource
import signal
import sys
from pathlib import Path

from small_disk import SETTINGS, failure

import gymlab
from gymlab.components.analytic import AnalyticGradient

MINIBATCHES = 4
"""Of an update: two passes over two minibatches."""


def main(runs_dir):
    # A process that the signal would end cannot say why.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit_in_update(3, runs_dir / "cut" / "metrics.csv")
    print(failure(lambda: gymlab.train("CartPole-v1:ppo", runs_dir=runs_dir, run_id="cut", **SETTINGS)))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    print(gymlab.resume("cut", runs_dir=runs_dir).status)


def limit_in_update(number, path):
    """From an update on, let no file grow beyond what this one has."""
    compute, calls = AnalyticGradient.__call__, []

    def limiting(self, batch, coefficients):
        calls.append(batch)
        if len(calls) == (number - 1) * MINIBATCHES + 1:
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, most))
        return compute(self, batch, coefficients)

    AnalyticGradient.__call__ = limiting


if __name__ == "__main__":
    main(Path(sys.argv[1]))
