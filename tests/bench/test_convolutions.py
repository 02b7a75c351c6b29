"""The bench of convolutions: rows and goals from a worker that answers at once, and a short measurement."""

import pytest
import torch
from torch.nn import functional

from gymlab.bench import convolution_times, convolutions
from gymlab.bench.convolution_times import take_turns, time_layer, torch_gradient
from gymlab.bench.launch import WorkerFailure
from gymlab.bench.plan import Plan
from gymlab.components.compiled import kernels
from gymlab.errors import GymlabError


def worker(job, timeout):
    channels = job["layer"][1]
    forward = {"forward/torch": 16.0, "forward/kernel": 8.0, "forward/ratio": 2.0}
    ratio = {32: 4.0, 64: 3.0, 128: 0.5}[channels]
    return {**forward, "weights/torch": 12.0, "weights/kernel": 12.0 / ratio, "weights/ratio": ratio}


def test_goals_are_taken_from_the_figures():
    section = convolutions.measure(Plan(repeats=2, worker=worker), threads=1)
    assert [(check.value, check.met) for check in section.checks] == [(2.0, True), (0.5, False)]
    forward, weights = section.tables
    assert forward.rows[0] == ["32 channels, 64x64", "16", "8", "2.00x"]
    assert weights.rows[0] == ["32 channels, 64x64", "12", "3", "4.00x"]


def test_a_layer_that_failed_misses_the_goal_and_is_named():
    def failing(job, timeout):
        if job["layer"][1] == 128:
            raise WorkerFailure("no kernel")
        return worker(job, timeout)

    section = convolutions.measure(Plan(repeats=2, worker=failing), threads=1)
    assert [check.met for check in section.checks] == [False, False]
    assert "128 channels, 32x32 failed: no kernel" in section.tables[-1].note


@pytest.mark.skipif(kernels("winograd") is None, reason="no C compiler, or a processor of another kind")
def test_both_are_measured_turn_by_turn(monkeypatch):
    """The first turn warms up, the next counts."""
    times = {"conv2d": [9, 0.003], "convolve": [9, 0.001], "torch_gradient": [9, 0.008], "weight_gradient": [9, 0.002]}
    iterators = {name: iter(seconds) for name, seconds in times.items()}

    def seconds(work):
        work()
        return next(iterators[work.func.__name__])

    monkeypatch.setattr(convolution_times, "_seconds", seconds)
    found = time_layer(convolutions.layer_job((1, 64, 16), threads=1, seconds=0, seed=0))
    expected = {"forward/torch": 3, "forward/kernel": 1, "forward/ratio": 3}
    expected |= {"weights/torch": 8, "weights/kernel": 2, "weights/ratio": 4}
    assert found == pytest.approx(expected)


def test_torchs_gradient_is_that_of_its_backward_pass():
    x, weight, push = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3, requires_grad=True), torch.randn(2, 4, 5, 5)
    functional.conv2d(x, weight, padding=1).backward(push)
    torch.testing.assert_close(torch_gradient(x, weight.detach(), push), weight.grad)


def test_without_a_kernel_it_says_so(monkeypatch):
    monkeypatch.setenv("GYMLAB_KERNELS", "0")
    with pytest.raises(GymlabError, match="gymlab doctor"):
        time_layer(convolutions.layer_job((1, 64, 16), threads=1, seconds=0.02, seed=0))


def test_the_turn_that_warms_up_does_not_count():
    calls = []
    turns = take_turns(lambda: calls.append("one"), lambda: calls.append("other"), seconds=0)
    assert calls == ["one", "other"] * 2
    assert len(turns) == 1
