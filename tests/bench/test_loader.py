"""`gymlab bench loader`: real minibatches, counted by hand."""

import numpy as np
import pytest

from gymlab.bench import loader
from gymlab.bench.batches import columns_bytes, columns_of, made_up_rollout, time_batches
from gymlab.bench.plan import Plan


def test_rates_belong_to_each_other():
    figures = time_batches(2, 16, 8, [4], "float32", seed=0, seconds=0.01)
    # 32 rows in 4 minibatches; a row is 16 bytes of observation, 8 of action and 4 x 4 of numbers.
    assert figures["rows_per_second"] == pytest.approx(figures["batches_per_second"] * 8)
    assert figures["megabytes_per_second"] == pytest.approx(figures["rows_per_second"] * 40 / 1e6)


def test_columns_are_the_rollout_row_by_row():
    rollout = made_up_rollout(2, 3, [4, 5], "uint8", np.random.default_rng(0))
    columns = columns_of(rollout)
    assert columns.observations.shape == (6, 4, 5)
    assert columns.observations.dtype == np.uint8
    np.testing.assert_array_equal(columns.values, rollout.values.reshape(-1))
    assert columns_bytes(rollout) == 6 * (20 + 8 + 16)


def test_a_table_with_a_line_for_each_kind_of_observation():
    asked = []

    def worker(job, timeout):
        asked.append(job)
        return {"batches_per_second": 10.0, "rows_per_second": 80.0, "megabytes_per_second": 1.0}

    sizes = {"n_envs": 2, "n_steps": 16, "batch_size": 8}
    section = loader.measure(Plan(repeats=2, seconds=0.5, worker=worker), sizes)
    assert [row[0] for row in section.tables[0].rows] == list(loader.OBSERVATIONS)
    assert section.data["observations"]["4x84x84 image"]["rows_per_second"] == 80.0
    assert len(asked) == 2 * len(loader.OBSERVATIONS)
    assert (asked[0]["task"], asked[0]["batch_size"], asked[0]["shape"]) == ("batches", 8, [4])
