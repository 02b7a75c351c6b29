"""Windows are whole, uniform, and the same again after a resume."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from replays import FIELDS, LATENTS, assert_same, counters, fill, make, records, streams

from gymlab.buffers import room
from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.sequence import Field, Records, SequenceReplay
from gymlab.config.phases import parse_phases
from gymlab.config.targets import instantiate
from gymlab.engine.phases import PhaseScheduler
from gymlab.errors import CheckpointError, ConfigError, GymlabError


def test_windows_are_consecutive_and_never_mix_oldest_and_newest():
    """Capacity 10, windows of 4, 25 writes: records 15 to 24 are held, so that windows begin at 15 to 21."""
    replay = make(capacity=10, chunk=4, online=False)
    fill(replay, 25)
    starts = set()
    for _ in range(100):
        batch = replay.sample()
        assert (np.diff(counters(batch), axis=1) == 1).all()
        starts |= set(counters(batch)[:, 0].tolist())
    assert starts == set(range(15, 22))
    assert len(replay) == 10


def test_every_start_is_as_likely_as_any_other_in_streams_of_different_lengths():
    """1e5 draws from 1,000 items: 700 of one stream and 300 of the other."""
    replay = make(2, capacity=4000, batch_size=1000, online=False, chunk=64)
    replay.add([records(0, 703, env=0), records(0, 303, env=1)])
    seen = np.zeros(1000)
    for _ in range(100):
        batch = replay.sample()
        np.add.at(seen, counters(batch)[:, 0] + 700 * streams(batch)[:, 0], 1)
    # The 99th percentile of chi-square with 999 degrees of freedom is 1105.9.
    assert ((seen - 100) ** 2 / 100).sum() < 1105.9
    assert seen.min() > 0


def test_is_first_where_episodes_begin_and_at_the_windows_start():
    replay = make(capacity=1000, batch_size=64, length=6, online=False)
    fill(replay, 100, episode=5)
    batch = replay.sample()
    index = counters(batch)
    assert batch.values["is_first"][:, 0].all()
    np.testing.assert_array_equal(batch.values["is_first"][:, 1:], index[:, 1:] % 5 == 0)
    np.testing.assert_array_equal(batch.values["is_last"], index % 5 == 4)
    np.testing.assert_array_equal(batch.values["is_terminal"], (index % 5 == 4) & (index // 5 % 2 == 1))
    assert batch.values["reward"].dtype == np.float64
    np.testing.assert_array_equal(batch.values["reward"], index / 8)


def test_an_abandoned_episode_ends_where_the_next_begins():
    replay = make(length=5, online=False, batch_size=16)
    broken = records(0, 20, episode=4)
    broken.values["is_last"][7] = False
    broken.values["is_terminal"][:] = False
    replay.add([broken])
    batch = replay.sample()
    index = counters(batch)
    before_a_first = np.zeros_like(index, dtype=bool)
    before_a_first[:, :-1] = index[:, 1:] % 4 == 0
    last = (index % 4 == 3) & (index != 7)
    np.testing.assert_array_equal(batch.values["is_last"], before_a_first | last)
    assert (batch.values["is_last"] & (index == 7)).any()
    assert not batch.values["is_terminal"].any()


def test_every_record_is_in_one_online_window():
    replay = make(2, capacity=1000, batch_size=3, chunk=8)
    seen = []
    for at in range(0, 410, 5):
        if at < 400:
            fill(replay, 5, first=at)
        for _ in range(2 if replay.ready() else 0):
            batch = replay.sample()
            assert (np.diff(batch.online.astype(int)) <= 0).all()
            seen += (2 * counters(batch) + streams(batch))[batch.online].reshape(-1).tolist()
    assert sorted(seen) == list(range(800))
    assert replay.sample().metrics()["replay/online"] == 0.0
    assert not any(make_and_sample(online=False).online)


def make_and_sample(**options):
    replay = make(**options)
    fill(replay, 50)
    return replay.sample()


def test_age_is_counted_in_records_since_the_window():
    replay = make(capacity=100, batch_size=2, length=3)
    fill(replay, 8)
    batch = replay.sample()
    assert batch.online.all()
    assert batch.age.tolist() == [4, 0]
    assert batch.metrics() == {"replay/age": 2.0, "replay/online": 1.0}


def test_updates_per_step_follow_the_ratio():
    """10,000 env steps, train ratio 32, batches of 16 x 64: 312 updates."""
    phases = [{"name": "a", "type": "online", "hooks": ["collect", {"name": "update_x", "ratio": 32 / 1024}]}]
    scheduler, updates = PhaseScheduler(parse_phases(phases), 10_000), 0
    while (action := scheduler.next_action()) is not None:
        scheduler.advance(action, env_steps=int(action.collects), updates=int(not action.collects))
        updates += not action.collects
    assert updates in (312, 313)


def test_memory_is_bounded_and_chunks_are_freed():
    replay = make(2, capacity=40, chunk=8, online=False)
    for at in range(0, 400, 10):
        fill(replay, 10, first=at, step=10)
        assert replay.nbytes <= replay.nbytes_full
        assert len(replay) <= 40
    record = 2 * 8 + 8 + 3
    assert replay.nbytes_full == 2 * 4 * 8 * record
    one_long = make(capacity=40, chunk=8)
    one_long.add([records(0, 1000)])
    assert one_long.nbytes <= one_long.nbytes_full
    assert counters(one_long.sample()).min() >= 960


def test_a_chosen_window_that_was_evicted_is_drawn_again():
    replay = make(capacity=20, chunk=4, online=False)
    fill(replay, 20)
    replay.sample()
    fill(replay, 500, first=20)
    batch = replay.sample()
    assert (counters(batch) >= 500).all()
    assert (np.diff(counters(batch), axis=1) == 1).all()


def test_latents_are_zero_until_written_and_only_the_addressed_rows_change():
    """Chunks of 4 and windows of 6: every window crosses a border."""
    replay = make(2, capacity=48, chunk=4, length=5, latents=LATENTS, batch_size=3)
    fill(replay, 24)
    expected = {name: np.zeros((2, 24, *field.shape), field.dtype) for name, field in LATENTS.items()}
    generator = np.random.default_rng(1)
    for _ in range(30):
        batch = replay.sample()
        env, index = streams(batch), counters(batch)
        for name, stored in expected.items():
            np.testing.assert_array_equal(batch.values[name], stored[env, index])
        ids = batch.ids[:, 1:]
        update = {
            "latent/deter": generator.normal(size=(3, 5, 3)).astype(np.float32),
            "latent/stoch": generator.integers(255, size=(3, 5, 2, 2)),
        }
        replay.write_back((ids, update))
        for row in range(3):
            for name, array in update.items():
                expected[name][env[row, 1:], index[row, 1:]] = array[row]
    assert (expected["latent/deter"] != 0).any(axis=2).mean() > 0.5


def test_latents_that_come_with_the_records_are_kept():
    replay = make(latents={"latent/x": Field((), np.float32)}, chunk=4)
    given = records(0, 10)
    replay.add([Records(given.env, {**given.values, "latent/x": np.arange(10.0)})])
    batch = replay.sample()
    np.testing.assert_array_equal(batch.values["latent/x"], counters(batch))


def test_writing_back_what_was_evicted_does_nothing():
    replay = make(capacity=12, chunk=4, latents={"latent/x": Field((), np.float32)}, online=False)
    fill(replay, 12)
    batch = replay.sample()
    fill(replay, 9, first=12)
    replay.write_back((batch.ids, {"latent/x": np.ones((4, 4), np.float32)}))
    for _ in range(20):
        later = replay.sample()
        written = np.isin(later.ids, batch.ids) & (counters(later) >= 9)
        np.testing.assert_array_equal(later.values["latent/x"], written)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reward": np.zeros(3, np.float32)}, r"'reward' is float32 \(3,\)"),
        ({"is_first": np.zeros(2, np.float64)}, r"stores bool \(2,\)"),
        ({"observation/observation": np.zeros((2, 3), np.int64)}, r"stores int64 \(2, 2\)"),
        ({"rewards": np.zeros(2)}, "'rewards' is no field of the replay. Did you mean 'reward'"),
    ],
)
def test_records_that_do_not_fit_are_refused_by_name(values, message):
    good = records(0, 2)
    with pytest.raises(ConfigError, match=message):
        make().add([Records(good.env, {**good.values, **values})])


def test_more_refusals():
    good = records(0, 2)
    with pytest.raises(ConfigError, match="'reward' is missing"):
        make().add([Records(good.env, {k: v for k, v in good.values.items() if k != "reward"})])
    with pytest.raises(ConfigError, match="env must be 0 to 1"):
        make(2).add([records(0, 2, env=2)])
    uint8 = {**FIELDS, "reward": Field((), np.uint8)}
    with pytest.raises(ConfigError, match="'reward' is float64"):
        make(fields=uint8).add([good])
    with pytest.raises(ConfigError, match=r"write_back: 'latent/dter'.*Did you mean 'latent/deter'"):
        make(latents=LATENTS).write_back((np.zeros((1, 2), np.int64), {"latent/dter": np.zeros((1, 2, 3))}))
    with pytest.raises(IndexError, match="no whole window"):
        make().sample()


def test_ready_needs_as_many_starts_as_a_batch_has_records_if_the_capacity_has_them():
    replay = make(capacity=1000, batch_size=4, length=3, least=None)
    fill(replay, 14)
    assert not replay.ready()
    fill(replay, 1, first=14)
    assert replay.ready()
    small = make(capacity=9, batch_size=4, length=3, least=None)
    assert small.least == 6
    fill(small, 9)
    assert small.ready()
    for options in ({"capacity": 3}, {"capacity": 10, "held_out": 0.5}):
        with pytest.raises(ConfigError, match="replay_size"):
            make(**options)
    with pytest.raises(ConfigError, match="15 records are 3 for each of 5 environments"):
        make(5, capacity=15)


def test_held_out_windows_are_never_trained_on():
    replay = make(2, capacity=400, held_out=0.2, chunk=16, batch_size=16)
    assert replay.held_out_batch(5) is None
    fill(replay, 300, step=7)
    trained = set()
    for _ in range(50):
        trained |= set(np.unique(counters(replay.sample())).tolist())
    assert trained.isdisjoint(range(100, 300, 20))
    assert {index // 4 % 5 for index in trained} == {1, 2, 3, 4}
    held = replay.held_out_batch(6)
    assert counters(held)[:, 0].tolist() == [100, 180, 260, 120, 200, 280]
    assert streams(held)[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(np.diff(counters(held), axis=1), 1)
    assert counters(replay.held_out_batch(100, 2)).shape == (20, 2)
    with pytest.raises(ConfigError, match="length must be 1 to 4"):
        replay.held_out_batch(1, 5)


def test_the_state_of_the_generator_does_not_move_by_looking_at_what_is_held_out():
    first, second = (make(held_out=0.2, capacity=400) for _ in range(2))
    for replay in (first, second):
        fill(replay, 100)
    for _ in range(5):
        first.held_out_batch(3)
        assert_same(first.sample(), second.sample())


def test_prefetching_changes_nothing():
    replays = [make(2, capacity=60, chunk=8, latents=LATENTS, prefetch=prefetch) for prefetch in (True, False)]
    for at in range(0, 200, 10):
        pair = []
        for replay in replays:
            fill(replay, 10, first=at)
            batch = replay.sample()
            replay.write_back((batch.ids, {"latent/deter": batch.values["latent/deter"] + 1}))
            pair.append(batch)
        assert_same(*pair)
    replays[0].close()


def test_a_failure_in_the_thread_is_told_by_the_next_sample():
    replay = make()
    fill(replay, 50)
    replay.sample()
    stream = replay._streams[0]
    stream.chunks[0].records = {}
    replay._begin_copy(replay._pending)
    with pytest.raises(KeyError, match="observation"):
        replay.sample()


def test_closing_ends_the_thread_and_sampling_goes_on_without_it():
    replay, other = make(), make()
    threads = []
    for each in (replay, other):
        fill(each, 50)
        before = set(threading.enumerate())
        each.sample()
        threads += set(threading.enumerate()) - before
    (its, others) = threads
    replay.close()
    assert not its.is_alive()
    assert others.is_alive()
    assert_same(replay.sample(), other.sample())
    other.close()
    replay.close()
    assert not others.is_alive()


def test_a_program_that_forgets_to_close_ends_all_the_same():
    code = "from replays import fill, make; replay = make(); fill(replay, 50); replay.sample(); replay.sample()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=True).returncode == 0


@pytest.mark.parametrize("on_disk", [False, True])
def test_many_threads_at_once(tmp_path, on_disk):
    replay = make(
        2, capacity=200, chunk=16, length=7, batch_size=8, latents=LATENTS, directory=tmp_path if on_disk else None
    )
    fill(replay, 40)
    until, failures = time.monotonic() + 1.5, []

    def repeat(work):
        try:
            while time.monotonic() < until:
                work()
        except BaseException as error:
            failures.append(error)

    def sample():
        batch = replay.sample()
        assert (np.diff(counters(batch), axis=1) == 1).all()
        assert (np.diff(streams(batch), axis=1) == 0).all()
        replay.write_back((batch.ids, {"latent/deter": batch.values["latent/deter"] + 1}))

    place = iter(range(40, 10**9, 5))
    jobs = [lambda: fill(replay, 5, first=next(place), step=5), sample, sample]
    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    replay.close()


def restored(replay, tmp_path, **options):
    """The replay's state in a fresh one that draws from another seed, with another directory object."""
    other = make(seed=99, **options)
    other.attach(ChunkFiles(tmp_path))
    other.set_state(replay.get_state())
    return other


@pytest.mark.parametrize("seen", [0, 3, 40, 170])
def test_a_restored_replay_gives_the_same_batches(tmp_path, seen):
    options = {"num_envs": 2, "capacity": 100, "chunk": 8, "latents": LATENTS, "held_out": 0.1}
    replay = make(**options)
    replay.attach(ChunkFiles(tmp_path))
    fill(replay, seen, episode=7)
    for _ in range(3 if replay.ready() else 0):
        batch = replay.sample()
        replay.write_back((batch.ids, {"latent/deter": np.random.default_rng(5).normal(size=(4, 4, 3))}))
    other = restored(replay, tmp_path, **options)
    assert len(other) == len(replay)
    for at in range(seen, seen + 150, 15):
        pair = []
        for each in (replay, other):
            fill(each, 15, first=at, episode=7)
            batch = each.sample()
            each.write_back((batch.ids, {"latent/stoch": batch.values["latent/stoch"] + 1}))
            pair.append(batch)
        assert_same(*pair)


@pytest.mark.parametrize("seen", [0, 60])
def test_a_replay_that_held_records_out_goes_on_without(tmp_path, seen):
    replay = make(capacity=200, online=False, held_out=0.1)
    replay.attach(ChunkFiles(tmp_path))
    fill(replay, seen)
    for _ in range(3 if replay.ready() else 0):
        replay.sample()
    other = restored(replay, tmp_path, capacity=200, online=False)
    fill(other, 60, first=seen)
    drawn = {int(start) for _ in range(400) for start in other.sample().ids[:, 0]}
    assert drawn == set(range(len(other) - 3))


def test_a_restored_replay_draws_again_what_was_evicted_before_it_was_saved(tmp_path):
    options = {"capacity": 20, "chunk": 4, "online": False}
    replay = make(**options)
    replay.attach(ChunkFiles(tmp_path))
    fill(replay, 20)
    replay.sample()
    fill(replay, 100, first=20)
    other = restored(replay, tmp_path, **options)
    for _ in range(3):
        assert_same(replay.sample(), other.sample())


def test_only_what_is_new_is_written(tmp_path):
    replay = make(capacity=100, chunk=8, latents=LATENTS, online=False)
    replay.attach(ChunkFiles(tmp_path))
    fill(replay, 60)
    replay.get_state()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 7
    batch = replay.sample()
    replay.write_back((batch.ids[:1], {"latent/deter": np.ones((1, 4, 3))}))
    fill(replay, 10, first=60)
    replay.get_state()
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert before.items() <= after.items()
    touched = np.unique(counters(batch)[0] // 8)
    assert len(after) - len(before) == 1 + len(touched[touched < 8])
    assert {reference.name for reference in replay.references()} == set(after)


def test_states_that_do_not_fit_are_refused(tmp_path):
    replay = make(chunk=8)
    fill(replay, 20)
    with pytest.raises(GymlabError, match="no directory for its files"):
        replay.get_state()
    replay.attach(ChunkFiles(tmp_path))
    state = replay.get_state()
    for options, message in (
        ({"length": 4}, "window 4, here 5"),
        ({"fields": {**FIELDS, "reward": Field((), np.float32)}}, "fields"),
        ({"capacity": 90}, "capacity_per_env 100, here 90"),
        ({"online": False}, "online True, here False"),
    ):
        other = make(**{"chunk": 8, **options})
        other.attach(ChunkFiles(tmp_path))
        with pytest.raises(CheckpointError, match=message):
            other.set_state(state)
    other = make(chunk=8)
    other.attach(ChunkFiles(tmp_path))
    for damage in ({"online": np.array([[0, 18]])}, {"online": np.array([[1, 0]])}, {"online": np.array([[0, -1]])}):
        with pytest.raises(CheckpointError, match="windows that its streams do not have"):
            other.set_state(state | damage)
    with pytest.raises(CheckpointError, match="records 0 to 1000"):
        other.set_state(state | {"streams": [{**state["streams"][0], "written": 1000}]})


def test_a_replay_that_cannot_fit_is_refused_before_it_fills(monkeypatch, tmp_path):
    frames = {"observation/image": Field((64, 64, 3), np.uint8)}
    with pytest.raises(
        ConfigError, match=r"takes 122\d\d\.\d GB of memory.*smaller replay_size, or replay_on_disk: true"
    ):
        make(fields=frames, capacity=10**9)
    on_disk = make(fields=frames, capacity=10**9, on_disk=True)
    assert on_disk.nbytes_full == 1024 * 64 * 64 * 3
    with pytest.raises(ConfigError, match=r"GB are free at .*--runs-dir"):
        on_disk.attach(ChunkFiles(tmp_path / "not" / "there"))
    monkeypatch.setattr(room, "available_memory", lambda: 1_000_000)
    assert make(fields={"x": Field((125,), np.uint8)}, capacity=7000, chunk=1000).nbytes_full == 1_000_000
    with pytest.raises(ConfigError, match=r"takes 1\.1 MB .* 1\.0 MB are available"):
        make(fields={"x": Field((125,), np.uint8)}, capacity=8000, chunk=1000)


def test_a_container_has_the_memory_that_it_is_given(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "CGROUP", tmp_path)
    whole = room.available_memory()
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.current").write_text("500000\n")
    assert room.available_memory() == 1_500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert room.available_memory() == pytest.approx(whole, rel=0.2)


def test_what_is_said_before_training():
    told = make(4, capacity=10_000, latents=LATENTS).describe()
    assert told["replay"] == "10,000 records in windows of 4, 606.2 kB in memory when full"
    assert told["replay_memory_bytes"] == 4 * 4 * 1024 * (27 + 10)


def test_by_name_with_what_only_the_workflow_knows_bound_later():
    node = {"_target_": "sequence_replay", "_partial_": True, "capacity": 100, "batch_size": 2, "length": 3}
    replay = instantiate(node)(FIELDS, 1, np.random.default_rng(0))
    assert isinstance(replay, SequenceReplay)
    fill(replay, 50)
    assert counters(replay.sample()).shape == (2, 4)


def test_stretch_after_stretch_is_everything_once_and_as_it_was_recorded():
    """Streams of 25 and 12 records with room for 10 each: records 15 to 24 and 2 to 11."""
    replay = make(2, capacity=20, chunk=4, latents=LATENTS)
    replay.add([records(0, 25, env=0, episode=5), records(0, 12, env=1, episode=5)])
    position, seen = 0, []
    while (found := replay.stretch(position, 7)) is not None:
        ids, values = found
        assert 0 < len(ids) <= 7
        index, env = values["observation/observation"].T
        np.testing.assert_array_equal(ids, index * 2 + env)
        np.testing.assert_array_equal(values["is_first"], index % 5 == 0)
        replay.write_back((ids, {"latent/deter": np.repeat(index[:, None], 3, 1).astype(np.float16)}))
        seen += list(zip(env.tolist(), index.tolist(), strict=True))
        position += len(ids)
    assert seen == [(0, k) for k in range(15, 25)] + [(1, k) for k in range(2, 12)]
    batch = replay.sample()
    np.testing.assert_array_equal(batch.values["latent/deter"][..., 0], counters(batch))
