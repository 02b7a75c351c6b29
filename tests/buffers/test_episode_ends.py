"""Replay that draws episodes' ends more often: exact chances, the same after a resume, eviction."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from replays import FIELDS, LATENTS, assert_same, counters, fill

from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.episode_ends import EndsReplay


def make(num_envs=1, *, seed=0, **options):
    settings = {"capacity": 100, "batch_size": 4, "length": 4, "context": 0, "least": 1, "online": False}
    return EndsReplay(FIELDS, num_envs, np.random.default_rng(seed), **settings | options)


class Counting:
    """A generator that gives every number below the bound once."""

    def integers(self, bound, size):
        assert size == bound
        return np.arange(bound)


def drawn(replay, count):
    replay.generator = Counting()
    env, start = replay._draw(count)
    return Counter(zip(env.tolist(), start.tolist(), strict=True))


def test_windows_that_end_an_episode_are_drawn_length_plus_one_times_as_often() -> None:
    replay = make()
    fill(replay, 20, episode=10, step=3)
    # Starts 0 to 16; records 9 and 19 are the last of their episodes. 17 + 2 * 4 chances.
    found = drawn(replay, 25)
    assert found == Counter({(0, start): 5 if start in (6, 16) else 1 for start in range(17)})


def test_ends_of_all_streams_count_and_evicted_ones_do_not() -> None:
    replay = make(2, capacity=24)
    fill(replay, 25, episode=10)
    # Each stream keeps records 13 to 24, starts 13 to 21; of the ends 9, 19 only that at 19 can be reached, from 16.
    found = drawn(replay, 2 * (9 + 4))
    assert found == Counter({(env, start): 5 if start == 16 else 1 for env in (0, 1) for start in range(13, 22)})


def test_an_end_that_is_held_out_is_not_drawn() -> None:
    replay = make(held_out=0.25)
    fill(replay, 40, episode=5)
    starts = {start for _, start in drawn(replay, sum(replay._starts()[1]) + 4 * len(replay.ends()[1]))}
    held_out = {*range(4), *range(16, 20), *range(32, 36)}
    assert not any(held_out & set(range(start, start + 4)) for start in starts)
    assert replay.ends()[1].tolist() == [6, 11, 21, 26, 36]


def test_a_resume_draws_the_same(tmp_path) -> None:
    replays = [make(seed=seed, latents=LATENTS, chunk=8, capacity=40) for seed in (0, 1)]
    for replay in replays:
        replay.attach(ChunkFiles(tmp_path))
    fill(replays[0], 61, episode=7)
    replays[0].sample()
    replays[1].set_state(replays[0].get_state())
    fill(replays[0], 9, first=61, episode=7)
    fill(replays[1], 9, first=61, episode=7)
    for _ in range(5):
        assert_same(replays[0].sample(), replays[1].sample())


def test_batches_are_full_of_ends() -> None:
    replay = make(batch_size=200, capacity=1000, length=20)
    fill(replay, 1000, episode=250)
    ends = (counters(replay.sample())[:, -1] % 250 == 249).mean()
    # 981 starts and 4 ends of 20 further chances: 84 in 1061 of all windows end an episode.
    assert ends == pytest.approx(84 / 1061, abs=0.06)
    assert ends > 4 / 981
