import numpy as np
import pytest
import torch

from gymlab.components.minibatch import STATISTICS, Gatherer, Minibatch, UpdateLog, cut
from gymlab.errors import NonFiniteError


def columns(rows=10):
    numbers = np.arange(rows, dtype=np.float32)
    observations = np.stack([numbers, -numbers], axis=1)
    return Minibatch(observations, numbers.astype(int), numbers + 1, numbers**2, numbers + 3, numbers + 4)


def test_every_row_is_used_once_and_columns_stay_together():
    gatherer, source = Gatherer(), columns()
    order = np.random.default_rng(0).permutation(10)
    seen = []
    for batch in gatherer.minibatches(source, order, cut(10, 4, 10), standardize_each=False):
        rows = batch.actions
        np.testing.assert_array_equal(batch.observations, source.observations[rows])
        np.testing.assert_array_equal(batch.log_probs, rows + 1)
        np.testing.assert_array_equal(batch.advantages, rows**2)
        np.testing.assert_array_equal(batch.returns, rows + 3)
        np.testing.assert_array_equal(batch.values, rows + 4)
        assert batch.action_masks is None
        seen += rows.tolist()
    assert sorted(seen) == list(range(10))
    assert seen == order.tolist()


def test_advantages_are_standardised_within_each_minibatch_and_the_source_is_left_alone():
    source = columns()
    batches = Gatherer().minibatches(source, np.arange(10), cut(10, 5, 10), standardize_each=True)
    for batch, part in zip(batches, (slice(0, 5), slice(5, 10)), strict=True):
        squares = np.arange(10.0)[part] ** 2
        np.testing.assert_allclose(batch.advantages, (squares - squares.mean()) / squares.std(ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(source.advantages, np.arange(10.0) ** 2)


@pytest.mark.parametrize(
    ("rows", "batch_size", "total", "sizes"),
    [
        (256, 64, 256, [64, 64, 64, 64]),
        (65, 64, 65, [32, 33]),
        (9, 4, 9, [3, 3, 3]),
        (7, 4, 8, [3, 4]),
        (1, 64, 1, [1]),
        (1, 1, 4, [1]),
        (0, 4, 4, []),
    ],
)
def test_cut_leaves_no_remainder_of_one(rows, batch_size, total, sizes):
    assert np.diff(cut(rows, batch_size, total)).tolist() == sizes


def test_means_of_an_update():
    log = UpdateLog(["trunk"])
    log.statistics = [(1.0, 2.0, 3.0, 4.0, 5.0), (3.0, 2.0, 3.0, 4.0, 5.0)]
    log.norms = [[0.5], [1.5]]
    means = log.means("the update")
    assert means["loss/policy"] == 2.0
    assert means["opt/grads/norm/trunk"] == 1.0
    tensors = UpdateLog(["trunk"])
    tensors.statistics = [torch.arange(5.0), torch.arange(5.0)]
    assert tensors.means("the update")["loss/value"] == 1.0


def test_a_number_that_is_not_finite_is_named():
    log = UpdateLog(["trunk"])
    log.statistics = [(0.0,) * 5, (0.0, float("nan"), 0.0, 0.0, 0.0)]
    with pytest.raises(
        NonFiniteError, match=rf"{STATISTICS[1]} is nan in minibatch 2 of the update after 64 env steps"
    ):
        log.means("the update after 64 env steps")
    log.statistics = [(0.0,) * 5]
    log.norms = [[float("inf")]]
    with pytest.raises(NonFiniteError, match="opt/grads/norm/trunk is inf"):
        log.means("the update")
