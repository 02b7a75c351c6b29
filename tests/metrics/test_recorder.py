import numpy as np
import pytest
import torch

from gymlab.errors import GymlabError
from gymlab.metrics.recorder import Recorder


def test_last_value_wins_and_means_are_means():
    recorder = Recorder()
    recorder.record("train/policy_lr", 1.0)
    recorder.record("train/policy_lr", 0.5)
    for value in (1.0, np.float32(2.0), torch.tensor(6.0)):
        recorder.record_mean("train/loss/policy", value)
    assert recorder.flush() == {"train/loss/policy": 3.0, "train/policy_lr": 0.5}
    assert recorder.flush() == {}


def test_values_of_all_kinds_become_plain_numbers():
    recorder = Recorder()
    recorder.record("a", np.int64(3))
    recorder.record("b", torch.tensor(2, dtype=torch.int64))
    recorder.record("c", torch.tensor(0.25, requires_grad=True))
    recorder.record("d", 7)
    row = recorder.flush()
    assert row == {"a": 3, "b": 2.0, "c": 0.25, "d": 7}
    assert all(type(value) in (int, float) for value in row.values())


def test_tensors_are_read_in_one_stack(monkeypatch):
    calls = []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda tensors: calls.append(len(tensors)) or stack(tensors))
    recorder = Recorder()
    for index in range(10):
        recorder.record_mean("train/loss/policy", torch.tensor(float(index)))
        recorder.record_mean("train/loss/value", torch.tensor(float(2 * index)))
    recorder.record("train/opt/kl", torch.tensor(0.5))
    assert recorder.flush() == {"train/loss/policy": 4.5, "train/loss/value": 9.0, "train/opt/kl": 0.5}
    assert calls == [21]


def test_a_hooks_metrics_get_their_purpose():
    recorder = Recorder()
    recorder.record_means({"loss/policy": 1.0, "val/x": 2.0})
    recorder.record_means({"loss/policy": 3.0})
    assert recorder.flush() == {"train/loss/policy": 2.0, "val/x": 2.0}


def test_a_nan_is_not_hidden_by_the_mean():
    recorder = Recorder()
    recorder.record_mean("a", float("nan"))
    recorder.record_mean("a", 1.0)
    assert np.isnan(recorder.flush()["a"])


@pytest.mark.parametrize("value", [torch.zeros(2), np.zeros((2, 3))])
def test_an_array_is_refused_by_name(value):
    recorder = Recorder()
    recorder.record("train/loss/policy", value)
    with pytest.raises(GymlabError, match=r"train/loss/policy.*shape"):
        recorder.flush()
