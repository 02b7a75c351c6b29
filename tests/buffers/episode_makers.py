"""Small episodes for tests: an observation tells its environment, episode and place, so that a segment shows where it comes from."""

import numpy as np

from gymlab.buffers.episodes import Episodes, Field, Records

FIELDS = {
    "observation/image": Field((2, 2, 3), np.uint8),
    "observation/where": Field((3,), np.int64),
    "action": Field((2,), np.float32),
    "reward": Field((), np.float64),
    "is_first": Field((), np.bool_),
    "is_last": Field((), np.bool_),
    "is_terminal": Field((), np.bool_),
}
RECORD_BYTES = 12 + 24 + 8 + 8 + 3


def make(num_envs=1, **options):
    """An empty buffer of 1,000 records."""
    return Episodes(FIELDS, num_envs, **{"capacity": 1000} | options)


def draw(episodes, name="world_model", seed=0, **options):
    """A sampler of 8 segments of 4 records."""
    settings = {"batch_size": 8, "length": 4, "alpha": 1.0, "past_end": True} | options
    return episodes.sampler(name, np.random.default_rng(seed), **settings)


def records(env, episode, low, high, length, *, terminal=True):
    """Records number `low` to `high` of an episode of `length` records."""
    at = np.arange(low, high)
    last = at == length - 1
    count = len(at)
    values = {
        "observation/image": np.broadcast_to((at % 255 + 1).astype(np.uint8)[:, None, None, None], (count, 2, 2, 3)),
        "observation/where": np.stack([np.full(count, env), np.full(count, episode), at + 1], axis=1),
        "action": np.where(last[:, None], 0, np.stack([at + 1, np.ones(count)], axis=1)).astype(np.float32),
        "reward": at / 8,
        "is_first": at == 0,
        "is_last": last,
        "is_terminal": last & terminal,
    }
    return Records(np.full(count, env), values)


def add_whole(episodes, *lengths, env=0, first=0):
    """Add episodes of so many records."""
    for index, length in enumerate(lengths):
        episodes.add([records(env, first + index, 0, length, length, terminal=(first + index) % 2 == 0)])


def live(episodes, lengths, steps, *, first=0):
    """Records of `steps` vector steps from step `first` on, as a collector gives them; environment i has episodes of lengths[i] records."""
    for at in range(first, first + steps):
        episodes.add(
            [
                records(env, at // length, at % length, at % length + 1, length, terminal=at // length % 2 == 0)
                for env, length in enumerate(lengths)
            ]
        )


def check_segments(batch):
    """Each segment is consecutive records of one episode, and padding is zeros."""
    where, mask = batch.values["observation/where"], batch.mask
    for row in range(len(mask)):
        real = where[row][mask[row]]
        assert len(real) > 0
        assert (real[:, :2] == real[0, :2]).all()
        np.testing.assert_array_equal(np.diff(real[:, 2]), 1)
        inside = np.flatnonzero(mask[row])
        np.testing.assert_array_equal(np.diff(inside), 1)
        np.testing.assert_array_equal(real[:, 2] - 1, batch.start[row] + inside)
    for array in batch.values.values():
        assert not array[~mask].any()
    assert not batch.values["action"][batch.values["is_last"]].any()


def assert_same(first, second):
    """Two batches are equal bit for bit."""
    assert first.values.keys() == second.values.keys()
    for name, array in first.values.items():
        np.testing.assert_array_equal(array, second.values[name], err_msg=name)
        assert array.dtype == second.values[name].dtype
    for name in ("mask", "ids", "start", "age", "count"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert first.metrics() == second.metrics()
