"""Small replays for tests: observations are counters, so that a window shows where it comes from."""

import numpy as np

from gymlab.buffers.sequence import Field, Records, SequenceReplay

FIELDS = {
    "observation/observation": Field((2,), np.int64),
    "reward": Field((), np.float64),
    "is_first": Field((), np.bool_),
    "is_last": Field((), np.bool_),
    "is_terminal": Field((), np.bool_),
}
LATENTS = {"latent/deter": Field((3,), np.float16), "latent/stoch": Field((2, 2), np.uint8)}


def make(num_envs=1, *, seed=0, fields=FIELDS, **options):
    """A replay of 100 records with batches of 4 windows of 1 + 3."""
    settings = {"capacity": 100, "batch_size": 4, "length": 3, "least": 1}
    return SequenceReplay(fields, num_envs, np.random.default_rng(seed), **settings | options)


def records(first, count, env=0, episode=None):
    """Records number `first` and so on; every `episode` records an episode begins, and every other one ends by itself."""
    index = np.arange(first, first + count)
    at = index % (episode or 10**9)
    last = at == (episode or 0) - 1
    values = {
        "observation/observation": np.stack([index, np.full(count, env)], axis=1),
        "reward": index / 8,
        "is_first": at == 0,
        "is_last": last,
        "is_terminal": last & (index // (episode or 1) % 2 == 1),
    }
    return Records(np.full(count, env), values)


def fill(replay, count, *, first=0, episode=None, step=1):
    """Add so many records to each stream, a few at a time."""
    for at in range(first, first + count, step):
        replay.add([records(at, min(step, first + count - at), env, episode=episode) for env in range(replay.num_envs)])


def counters(batch):
    """[B, T] the counters of a batch's observations."""
    return batch.values["observation/observation"][..., 0]


def streams(batch):
    """[B, T] whose stream each record is from."""
    return batch.values["observation/observation"][..., 1]


def assert_same(first, second):
    """Two batches are equal bit for bit."""
    assert first.values.keys() == second.values.keys()
    for name, array in first.values.items():
        np.testing.assert_array_equal(array, second.values[name], err_msg=name)
        assert array.dtype == second.values[name].dtype
    for name in ("ids", "age", "online"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
