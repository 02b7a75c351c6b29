"""Windows that follow one another: every step of every episode, in order, with starts only where episodes begin."""

import numpy as np
import pytest
from replays import FIELDS, LATENTS, counters, make, records, streams

from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.consecutive import ConsecutiveWindows, EpisodeTable, SingleRecords
from gymlab.buffers.record_replay import RecordReplay
from gymlab.errors import CheckpointError

NAMES = ("observation/observation", "is_first", "is_last")


def made(lengths=(), *, num_envs=1, capacity=1000, batch_size=1, length=4, held_out=0.0, seed=0, **options):
    """A replay with episodes of so many records in each environment, and windows over it."""
    replay = RecordReplay(FIELDS, num_envs, capacity=capacity, chunk=8, **options)
    add(replay, lengths)
    table = EpisodeTable(replay, held_out)
    generator = np.random.default_rng(seed)
    return replay, ConsecutiveWindows(table, generator, batch_size=batch_size, length=length, names=NAMES)


def add(replay, lengths):
    """Episodes behind what there is: record k of environment e shows (k, e)."""
    for env in range(replay.num_envs):
        at = int(replay.bounds()[1][env])
        for count in lengths:
            part = records(at, count, env)
            part.values["is_first"][:] = np.arange(count) == 0
            part.values["is_last"][:] = np.arange(count) == count - 1
            replay.add([part])
            at += count


def read(windows, batches):
    """[B, batches, T + 1] counters and flags of so many batches."""
    drawn = [windows.sample() for _ in range(batches)]
    return np.stack([counters(batch) for batch in drawn], 1), np.stack([b.values["is_first"] for b in drawn], 1)


def test_windows_by_hand():
    """Episodes of 6 and 4 records, 0 to 5 and 6 to 9, in windows of 3 steps: 5 steps and 3."""
    _, windows = made([6, 4], length=3)
    windows._waiting = [6, 0, 0, 6, 0]
    rows, flags = read(windows, 6)
    assert rows[0].tolist() == [
        [0, 1, 2, 3],
        [3, 4, 5, 6],  # goes on with the record that was expected last; from 5 to 6 is no step
        [6, 7, 8, 9],  # after 9 nothing comes: the next window begins with an episode
        [0, 1, 2, 3],
        [3, 4, 5, 0],
        [0, 1, 2, 3],
    ]
    np.testing.assert_array_equal(flags, np.isin(rows, (0, 6)))


def test_episodes_as_long_as_a_window_are_windows():
    """CarRacing as the authors have it: each window is one episode, from its start, and the memory of others does not matter."""
    _, windows = made([5] * 8, batch_size=3)
    rows, flags = read(windows, 8)
    assert (rows[..., 0] % 5 == 0).all()
    assert (np.diff(rows) == 1).all()
    assert flags[..., 0].all()
    assert not flags[..., 1:].any()


def test_every_step_is_learned_once_in_a_pass():
    """Steps are pairs of records; those over an episode's end are none, and no other is left out or comes twice."""
    lengths = [2, 9, 3, 17, 5, 4, 12, 2, 2, 7]
    _, windows = made(lengths, length=6)
    steps = sum(lengths) - len(lengths)
    seen = []
    while len(seen) < 3 * steps:
        batch = windows.sample()
        row, first = counters(batch)[0], batch.values["is_first"][0]
        seen += row[:-1][~first[1:]].tolist()
    for begin in range(0, 3 * steps, steps):
        assert len(set(seen[begin : begin + steps])) == steps


def test_rows_share_a_pass_and_none_reads_what_another_has_begun():
    _, windows = made([10] * 12, num_envs=2, batch_size=4, length=9)
    batches = [windows.sample() for _ in range(6)]
    begun = [
        (int(c), int(e)) for batch in batches for c, e in zip(counters(batch)[:, 0], streams(batch)[:, 0], strict=True)
    ]
    assert len(set(begun)) == 24


def test_what_is_held_out_is_never_trained_on_and_stays_so():
    replay, windows = made([4, 6, 5] * 20, held_out=0.2, batch_size=5)
    table = windows.table
    before = set(table.now().held_out.tolist())
    assert 4 <= len(before) <= 20
    apart = {record for first in before for record in range(first, first + table.now().lengths[first])}
    assert set(np.unique(read(windows, 100)[0]).tolist()) == set(range(300)) - apart
    held = windows.held_out_batch(1000)
    assert set(counters(held)[:, 0].tolist()) == before
    assert set(counters(held).flatten().tolist()) <= apart
    np.testing.assert_array_equal(held.values["is_first"], np.isin(counters(held), list(before)))
    add(replay, [4, 6, 5] * 20)
    after = set(table.now().held_out.tolist())
    assert {episode for episode in after if episode < 300} == before
    assert len(windows.held_out_batch(7).ids) == 7


def test_of_two_episodes_one_is_held_out_and_of_one_none():
    replay, windows = made([5], held_out=0.01)
    assert windows.held_out_batch(3) is None
    assert windows.ready()
    add(replay, [5])
    assert len(windows.table.now().held_out) == 1
    assert len(windows.table.now().trained) == 1
    assert made([5, 5], held_out=0.0)[1].held_out_batch(3) is None


def test_episodes_without_their_start_and_single_observations_are_not_read():
    """A capacity of 10: of episodes of 6, 1 and 6 records the first has lost three, its start among them."""
    _, windows = made([6, 1, 6], capacity=10)
    assert windows.table.now().trained.tolist() == [7]
    assert set(np.unique(read(windows, 9)[0]).tolist()) == set(range(7, 13))
    _, empty = made([6], capacity=5)
    assert not empty.ready()
    with pytest.raises(IndexError, match="collect more"):
        empty.sample()


def test_an_episode_that_is_evicted_while_it_is_read_is_left_for_another():
    replay, windows = made([10, 10], capacity=20, batch_size=2)
    windows.sample()
    add(replay, [6, 6, 6])
    batch = windows.sample()
    assert (counters(batch) >= 20).all()
    assert batch.values["is_first"][:, 0].all()


def test_an_episode_that_grows_is_read_on():
    replay, windows = made()
    first = records(0, 6)
    first.values["is_first"][0], first.values["is_first"][1:] = True, False
    replay.add([first])
    assert counters(windows.sample())[0].tolist() == [0, 1, 2, 3, 4]
    later = records(6, 4)
    later.values["is_first"][:] = False
    replay.add([later])
    assert counters(windows.sample())[0].tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restored_run_reads_on_where_it_was(tmp_path, on_disk):
    lengths, options = [7, 3, 12, 9, 4, 5, 8], {"held_out": 0.2, "batch_size": 3, "num_envs": 2, "on_disk": on_disk}
    replay, windows = made([], **options)
    replay.attach(ChunkFiles(tmp_path))
    add(replay, lengths)
    read(windows, 5)
    frames = SingleRecords(windows.table, np.random.default_rng(3), batch_size=6, names=NAMES)
    frames.sample()
    states = [part.get_state() for part in (replay, windows, frames)]
    again, others = made([], seed=9, **options)
    again.attach(ChunkFiles(tmp_path))
    drawn = SingleRecords(others.table, np.random.default_rng(4), batch_size=6, names=NAMES)
    for part, state in zip((again, others, drawn), states, strict=True):
        part.set_state(state)
    np.testing.assert_array_equal(read(windows, 9)[0], read(others, 9)[0])
    np.testing.assert_array_equal(counters(frames.sample()), counters(drawn.sample()))
    _, wide = made([], **{**options, "batch_size": 4})
    with pytest.raises(CheckpointError, match="batch_size 3, here 4"):
        wide.set_state(states[1])
    with pytest.raises(CheckpointError, match="damaged"):
        others.set_state({**states[1], "at": np.array([0, -1, 0])})


def test_a_replay_that_windows_were_drawn_from_is_taken_over(tmp_path):
    """Checkpoints of World Models from before it read its episodes in order."""
    before = make(2, capacity=1000, chunk=8, latents=LATENTS)
    before.attach(ChunkFiles(tmp_path))
    add(before, [7, 3, 12])
    before.sample()
    state = before.get_state()
    replay, windows = made(num_envs=2, latents=LATENTS)
    replay.attach(ChunkFiles(tmp_path))
    replay.set_state(state)
    assert len(replay) == 44
    assert sorted(windows.table.now().lengths.values()) == [3, 3, 7, 7, 12, 12]
    with pytest.raises(CheckpointError, match="capacity_per_env 500, here 400"):
        made(num_envs=2, latents=LATENTS, capacity=800)[0].set_state(state)


def test_single_records_are_drawn_alike_from_what_is_not_held_out():
    _, windows = made([3, 20, 7, 10] * 5, held_out=0.2)
    frames = SingleRecords(windows.table, np.random.default_rng(0), batch_size=1000, names=NAMES)
    held = {k for e in windows.table.now().held_out.tolist() for k in range(e, e + windows.table.now().lengths[e])}
    seen = np.zeros(200)
    for _ in range(100):
        batch = frames.sample()
        assert batch.values["is_first"].shape == (1000, 1)
        np.add.at(seen, counters(batch)[:, 0], 1)
    assert set(np.flatnonzero(seen == 0).tolist()) == held
    expected = 100_000 / (200 - len(held))
    assert ((seen[seen > 0] - expected) ** 2 / expected).sum() < 1.4 * (200 - len(held))


def test_records_and_latents_are_gathered_by_number():
    replay, _ = made([9, 8], num_envs=2, latents=LATENTS)
    ids = np.array([[0, 33, 5], [16, 17, 18]])
    written = np.arange(6).reshape(2, 3)
    replay.write_back((ids, {"latent/deter": np.repeat(written[..., None], 3, -1).astype(np.float16)}))
    values = replay.gather(ids, ("observation/observation", "latent/deter"))
    np.testing.assert_array_equal(values["observation/observation"], np.stack([ids // 2, ids % 2], -1))
    np.testing.assert_array_equal(values["latent/deter"][..., 0], written)
    for beyond in (34, -1):
        with pytest.raises(IndexError, match="does not hold"):
            replay.gather(np.array([beyond]), NAMES)
