"""Prioritised replay: what is drawn how often, what it weighs, and what is never drawn."""

from __future__ import annotations

import numpy as np
import pytest

from gymlab.buffers.batches import Records
from gymlab.buffers.chunk_files import ChunkFiles, Field
from gymlab.buffers.prioritised import PrioritisedReplay
from gymlab.errors import ConfigError

FIELDS = {"x": Field((), np.dtype(np.float32)), "is_first": Field((), np.dtype(bool))}


def replay(**options) -> PrioritisedReplay:
    defaults = {"capacity": 40, "batch_size": 8, "length": 3, "context": 0, "least": 1, "chunk": 4, "prefetch": False}
    return PrioritisedReplay(FIELDS, 2, np.random.default_rng(0), **{**defaults, **options})


def add(buffer: PrioritisedReplay, env: int, numbers, firsts=()) -> None:
    for number in numbers:
        values = {"x": np.array([number], np.float32), "is_first": np.array([number in firsts])}
        buffer.add([Records(np.array([env]), values)])


def drawn(buffer: PrioritisedReplay, batches: int = 1) -> np.ndarray:
    return np.concatenate([buffer.sample().values["x"][:, 0] for _ in range(batches)])


def test_windows_that_cross_into_another_episode_are_not_drawn() -> None:
    buffer = replay()
    assert not buffer.ready()
    add(buffer, 0, range(10), firsts=(0, 5))
    assert buffer.ready()
    # Windows of 3 that hold record 5 behind their first: 3 and 4; those of 8 and 9 are not whole.
    assert set(drawn(buffer, 40)) == {0, 1, 2, 5, 6, 7}
    for row in buffer.sample().values["x"]:
        assert (np.diff(row) == 1).all()


def test_whole_episodes_at_once_are_the_same() -> None:
    single, whole = replay(), replay()
    add(single, 1, range(12), firsts=(0, 7))
    values = {"x": np.arange(12, dtype=np.float32), "is_first": np.isin(np.arange(12), (0, 7))}
    whole.add([Records(np.ones(12, int), values)])
    assert np.array_equal(single.shares, whole.shares)


def test_priorities_decide_how_often_and_what_it_counts() -> None:
    # By hand: priorities 1 and 16 at alpha 0.5 are shares 1 and 4; at beta 0.5 the weights are 1 and 1/2.
    buffer = replay(alpha=0.5, beta=0.5, batch_size=64)
    add(buffer, 0, range(4), firsts=(0,))
    buffer.write_back(
        (np.array([0, 2]), {"priority": np.array([1.0, 16.0])})
    )  # records 0 and 1 of the first of two streams
    buffer.sample()
    batches = [buffer.sample() for _ in range(30)]
    first = np.concatenate([batch.values["x"][:, 0] for batch in batches])
    assert (first == 1).mean() == pytest.approx(0.8, abs=0.03)
    for batch in batches:
        weight = batch.weight
        assert weight[batch.values["x"][:, 0] == 0] == pytest.approx(1.0)
        assert weight[batch.values["x"][:, 0] == 1] == pytest.approx(0.5)
    # New windows are as surprising as the most surprising one.
    add(buffer, 0, [4])
    assert buffer.shares[0, 2] == pytest.approx(4.0)


def test_evicted_windows_are_forgotten() -> None:
    buffer = replay(capacity=16)  # 8 for each stream
    add(buffer, 0, range(20), firsts=(0,))
    assert set(drawn(buffer, 20)) == {12, 13, 14, 15, 16, 17}
    buffer.write_back((np.array([2 * 3]), {"priority": np.array([50.0])}))  # record 3 is long gone
    assert buffer.shares.max() == 1.0
    assert buffer.largest > 1


def test_held_out_records_are_in_no_window() -> None:
    buffer = replay(held_out=0.25)
    add(buffer, 0, range(20), firsts=(0,))
    for row in (buffer.sample().values["x"] for _ in range(20)):
        assert not np.isin(row, [0, 1, 2, 12, 13, 14]).any()
    held_out = buffer.held_out_batch(4)
    assert held_out.weight == pytest.approx(1.0)


def test_it_goes_on_where_it_was(tmp_path) -> None:
    buffer, twin = replay(), replay()
    for one in (buffer, twin):
        one.attach(ChunkFiles(tmp_path))
    add(buffer, 0, range(12), firsts=(0,))
    batch = buffer.sample()
    buffer.write_back((batch.ids[:, 0], {"priority": np.linspace(1, 9, 8)}))
    twin.set_state(buffer.get_state())
    for _ in range(5):
        one, other = buffer.sample(), twin.sample()
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.weight, other.weight)


def test_wrong_priorities_are_refused() -> None:
    buffer = replay()
    add(buffer, 0, range(6), firsts=(0,))
    for wrong in (0.0, np.nan):
        with pytest.raises(ConfigError, match="above 0"):
            buffer.write_back((np.array([0]), {"priority": np.array([wrong])}))
