"""The first signal asks, a second Ctrl-C does not wait."""

import os
import signal

import pytest

from gymlab.engine.signals import EXIT_AT_ONCE, StopSignal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_raises_a_flag(number):
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.name == number.name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_quits_at_once(monkeypatch):
    codes = []
    monkeypatch.setattr("gymlab.engine.signals.os._exit", codes.append)
    with StopSignal():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert codes == []
        os.kill(os.getpid(), signal.SIGINT)
    assert codes == [EXIT_AT_ONCE]
