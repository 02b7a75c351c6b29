"""Hints in errors."""

import time

from gymlab.errors import did_you_mean


def test_the_nearest_names():
    assert did_you_mean("gama", ["gamma", "seed"]) == "Did you mean 'gamma'?"
    assert did_you_mean("x", ["gamma"]) == ""


def test_a_name_of_any_length_is_answered_at_once():
    """Every file may hold one; compared whole it would take minutes of the processor."""
    began = time.thread_time()
    did_you_mean("gamma" * 20_000, [f"gamma-{number}" for number in range(1000)])
    assert time.thread_time() - began < 10
