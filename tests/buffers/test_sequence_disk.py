"""A replay in files gives the same batches as one in memory, and keeps in memory only what is being written."""

import os
import shutil

import numpy as np
import pytest
from replays import FIELDS, LATENTS, assert_same, counters, fill, make

from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.errors import CheckpointError, GymlabError

OPTIONS = {"num_envs": 2, "capacity": 120, "chunk": 8, "latents": LATENTS, "held_out": 0.1}


def test_the_same_seed_gives_the_same_batches_as_in_memory(tmp_path):
    pair = make(**OPTIONS), make(**OPTIONS, directory=tmp_path)
    generator = np.random.default_rng(0)
    for at in range(0, 400, 10):
        update = generator.normal(size=(4, 4, 3)).astype(np.float16)
        batches = []
        for replay in pair:
            fill(replay, 10, first=at, episode=7)
            batches.append(replay.sample())
            replay.write_back((batches[-1].ids, {"latent/deter": update}))
        assert_same(*batches)
        held = [replay.held_out_batch(5) for replay in pair]
        assert_same(*held)


def test_memory_holds_the_newest_chunk_of_each_stream_and_the_disk_no_evicted_one(tmp_path):
    replay = make(**OPTIONS, directory=tmp_path)
    record = sum(field.nbytes for field in FIELDS.values())
    for at in range(0, 400, 10):
        fill(replay, 10, first=at, step=10)
        assert replay.nbytes <= replay.nbytes_full == 2 * 8 * record
        numbers = sorted(int(name.split("-")[2]) for name in os.listdir(tmp_path) if "-0000-" in name)
        oldest = max(0, at + 10 - 60)
        assert numbers == list(range(oldest // 8, (at + 10) // 8))
    chunk = replay._streams[0].chunks[45]
    assert not any(array.flags.writeable for array in chunk.records.values())


def test_state_round_trip_on_disk_and_between_memory_and_disk(tmp_path):
    replay = make(**OPTIONS, directory=tmp_path)
    fill(replay, 150, episode=7)
    batch = replay.sample()
    replay.write_back((batch.ids, {"latent/deter": np.ones((4, 4, 3))}))
    state = replay.get_state()
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    others = [make(**OPTIONS, seed=5, directory=tmp_path / "copy"), make(**OPTIONS, seed=6)]
    others[1].attach(ChunkFiles(tmp_path / "copy"))
    for other in others:
        other.set_state(state)
    for at in range(150, 250, 10):
        batches = []
        for each in (replay, others[1]):
            fill(each, 10, first=at, episode=7)
            batches.append(each.sample())
        assert_same(*batches)
    third = make(**OPTIONS, seed=7, directory=tmp_path / "copy")
    with pytest.raises(CheckpointError, match="cannot be read"):
        # The replay in memory has given up files of the copy that it evicted.
        third.set_state(state)


def test_a_replay_moves_to_the_directory_of_its_run(tmp_path):
    pair = make(**OPTIONS, directory=tmp_path / "first"), make(**OPTIONS)
    for replay in pair:
        fill(replay, 50)
        batch = replay.sample()
        replay.write_back((batch.ids, {"latent/deter": np.ones((4, 4, 3))}))
    pair[0].attach(ChunkFiles(tmp_path / "second"), "My Replay")
    assert os.listdir(tmp_path / "first") == []
    for _ in range(5):
        assert_same(pair[0].sample(), pair[1].sample())
    fill(pair[0], 10, first=50)
    assert any(name.startswith("my-replay-0001-") for name in os.listdir(tmp_path / "second"))


def test_latents_move_to_disk_when_the_directory_is_known(tmp_path):
    late = make(**{**OPTIONS, "chunk": 64}, on_disk=True)
    fill(late, 20)
    batch = late.sample()
    late.write_back((batch.ids, {"latent/deter": np.full((4, 4, 3), 7)}))
    late.attach(ChunkFiles(tmp_path))
    stored = late._streams[0].chunks[0].latents["latent/deter"]
    assert (stored == 7).any()
    assert not stored.flags.owndata
    unattached = make(**OPTIONS, on_disk=True)
    with pytest.raises(GymlabError, match="no directory for its files yet"):
        fill(unattached, 20)


def test_a_slot_that_was_used_before_is_empty_again(tmp_path):
    replay = make(capacity=16, chunk=4, length=3, latents=LATENTS, directory=tmp_path, online=False, batch_size=16)
    for at in range(0, 100, 4):
        fill(replay, 4, first=at)
        batch = replay.sample()
        fresh = counters(batch) >= at
        assert not batch.values["latent/deter"][fresh].any()
        replay.write_back((batch.ids, {"latent/deter": np.ones((16, 4, 3))}))
