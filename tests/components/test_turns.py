"""Ways measured by turns, by a clock that says what the test wants."""

from types import SimpleNamespace

import pytest

from gymlab.components import turns
from gymlab.components.turns import seconds_by_turns


@pytest.fixture
def clock(monkeypatch):
    """Work on it is a number of seconds; what `lost` holds under the number of a call is taken off again, as a host does."""
    clock = SimpleNamespace(own=0.0, passed=0.0, calls=0, lost={})

    def work(seconds):
        def take():
            clock.own += seconds - clock.lost.get(clock.calls, 0.0)
            clock.passed += seconds
            clock.calls += 1

        return take

    clock.work = work
    monkeypatch.setattr(
        turns, "time", SimpleNamespace(thread_time=lambda: clock.own, perf_counter=lambda: clock.passed)
    )
    return clock


def test_each_way_has_its_time(clock):
    assert seconds_by_turns([clock.work(3.0), clock.work(2.0)], 4) == [3.0, 2.0]
    assert clock.calls == 8


def test_it_goes_on_for_as_long_as_is_wanted(clock):
    seconds_by_turns([clock.work(3.0), clock.work(2.0)], 4, at_least=50.0)
    assert clock.calls == 20


def test_a_turn_that_the_host_swallowed_does_not_count(clock):
    """The second way's third call seems to take no time at all, its fourth one five times as much."""
    clock.lost = {5: 2.0, 7: -8.0}
    assert seconds_by_turns([clock.work(3.0), clock.work(2.0)], 8) == [3.0, 2.0]


def test_real_work_takes_time():
    (seconds,) = seconds_by_turns([lambda: sum(range(10_000))], 4)
    assert 0 < seconds < 1
