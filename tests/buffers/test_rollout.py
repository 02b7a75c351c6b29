import numpy as np
import pytest

from gymlab.buffers.rollout import Rollout, RolloutBuffer


def rollout(value=1.0, steps=3, envs=2, **changes):
    shape = (steps, envs)
    arrays = {
        "observations": np.full((*shape, 4), value, np.float32),
        "actions": np.zeros(shape, np.int64),
        "log_probs": np.zeros(shape, np.float32),
        "values": np.arange(steps * envs, dtype=np.float32).reshape(shape),
        "bootstrap_values": np.array([100.0, 200.0, 300.0], np.float32),
        "rewards": np.full(shape, value, np.float32),
        "terminated": np.zeros(shape, bool),
        "truncated": np.zeros(shape, bool),
        "bootstrap_observations": np.zeros((3, 4), np.float32),
        "bootstrap_rows": np.array([1, 4, 5]),
    }
    return Rollout(**arrays | changes)


def test_next_values_come_from_the_row_below_except_at_a_cut():
    data = rollout()
    next_values = data.next_values(data.values, data.bootstrap_values)
    np.testing.assert_array_equal(next_values, [[2, 100], [4, 5], [200, 300]])


def test_rows_and_flattening():
    data = rollout()
    assert data.size == 6
    assert data.flat(data.observations).shape == (6, 4)
    np.testing.assert_array_equal(data.valid_rows(), range(6))
    valid = np.array([[True, False], [True, True], [False, True]])
    np.testing.assert_array_equal(rollout(valid=valid).valid_rows(), [0, 2, 3, 5])


def test_buffer_gives_a_rollout_once():
    buffer = RolloutBuffer()
    assert not buffer.ready()
    with pytest.raises(IndexError, match="collect"):
        buffer.sample()
    data = rollout()
    buffer.add(data)
    assert buffer.ready()
    assert buffer.nbytes == data.nbytes
    assert buffer.sample() == [data]
    assert not buffer.ready()
    assert buffer.nbytes == 0


def test_older_rollouts_stay_up_to_capacity_on_memory_of_their_own():
    buffer = RolloutBuffer(capacity=12)
    shared = rollout(0.0)
    for value in (1.0, 2.0, 3.0, 4.0):
        shared.rewards[:] = value
        buffer.add(shared)
        batch = buffer.sample()
    assert [data.rewards[0, 0] for data in batch] == [4.0, 2.0, 3.0]
    shared.rewards[:] = 5.0
    buffer.add(shared)
    assert [data.rewards[0, 0] for data in buffer.sample()] == [5.0, 3.0, 4.0]


def test_state_round_trip():
    buffer = RolloutBuffer(capacity=100)
    buffer.add(rollout(1.0))
    buffer.sample()
    buffer.add(rollout(2.0, valid=np.ones((3, 2), bool)))
    other = RolloutBuffer(capacity=100)
    other.set_state(buffer.get_state())
    assert other.ready()
    newest, older = other.sample()
    assert newest.valid.all()
    assert older.valid is None
    assert (newest.rewards[0, 0], older.rewards[0, 0]) == (2.0, 1.0)
    empty = RolloutBuffer()
    empty.set_state(RolloutBuffer().get_state())
    assert not empty.ready()
