"""What counts as the same between two trees, and how a difference is named."""

import pkgutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import same


def make_run(directory, weight=1.0, loss="0.5", extra=None, rows=2):
    checkpoint = directory / "checkpoints" / "last.ckpt"
    checkpoint.mkdir(parents=True)
    tensors = {"policy.weight": np.array([weight, 2.0], np.float32)} | (extra or {})
    save_file(tensors, checkpoint / "model.safetensors")
    lines = ["train/cnt/env_steps,train/loss,sys/time", *(f"{row},{loss},{id(directory)}" for row in range(rows))]
    (directory / "metrics.csv").write_text("\n".join(lines) + "\n")
    return directory


def differences(base, here):
    return [str(found) for found in (*same.tensor_differences(base, here), *same.metric_differences(base, here))]


def test_equal_runs_differ_in_their_clock_alone(tmp_path):
    assert differences(make_run(tmp_path / "a"), make_run(tmp_path / "b")) == []


def test_the_last_bit_of_a_weight_is_a_difference(tmp_path):
    next_up = np.nextafter(np.float32(1), np.float32(2))
    (found,) = differences(make_run(tmp_path / "a"), make_run(tmp_path / "b", weight=next_up))
    assert found == "policy.weight: differs by up to 1.19e-07"


def test_equal_values_of_other_bits_are_a_difference(tmp_path):
    (found,) = differences(make_run(tmp_path / "a", weight=0.0), make_run(tmp_path / "b", weight=-0.0))
    assert found == "policy.weight: differs by up to 0"


def test_a_tensor_on_one_side_is_named(tmp_path):
    more = make_run(tmp_path / "b", extra={"value.weight": np.zeros(1, np.float32)})
    assert differences(make_run(tmp_path / "a"), more) == ["value.weight: only here"]


def test_a_metric_is_named_with_its_first_row(tmp_path):
    (found,) = differences(make_run(tmp_path / "a"), make_run(tmp_path / "b", loss="0.25"))
    assert found == "train/loss: row 1: 0.5 in the base, 0.25 here"


def test_a_shorter_table_is_a_difference(tmp_path):
    found = differences(make_run(tmp_path / "a"), make_run(tmp_path / "b", rows=3))
    assert found == ["train/cnt/env_steps: 2 rows in the base, 3 here", "train/loss: 2 rows in the base, 3 here"]


def test_an_empty_table_is_no_proof(tmp_path):
    with pytest.raises(SystemExit, match="no row"):
        differences(make_run(tmp_path / "a", rows=0), make_run(tmp_path / "b", rows=0))


def test_every_workflow_is_compared():
    from gymlab import workflows
    from gymlab.api import resolve

    shipped = {module.name for module in pkgutil.iter_modules(workflows.__path__)}
    assert {resolve(name).config.algo_id for name in same.EXPERIMENTS} == shipped
