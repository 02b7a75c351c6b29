"""Episodes: assembled from the records of environments, bounded, kept in files that are safe to read, and saved exactly."""

import numpy as np
import pytest
from episode_makers import FIELDS, RECORD_BYTES, add_whole, assert_same, check_segments, draw, live, make, records

from gymlab.buffers import room
from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.episodes import Episodes, Records
from gymlab.errors import CheckpointError, ConfigError, GymlabError


def whole(episodes, number):
    """All records of an episode."""
    length = int(episodes.lengths[np.searchsorted(episodes.ids, number)])
    values = episodes.gather(np.array([number]), np.array([0]), length)
    return {name: array[0] for name, array in values.items()}


def test_an_episode_of_n_actions_is_n_plus_one_records_and_keeps_its_types():
    episodes = make()
    add_whole(episodes, 4, 3)
    assert episodes.ids.tolist() == [0, 1]
    assert episodes.lengths.tolist() == [4, 3]
    assert episodes.ended.tolist() == [True, True]
    first, second = whole(episodes, 0), whole(episodes, 1)
    assert first["observation/where"].tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 0, 4]]
    assert first["action"].tolist() == [[1, 1], [2, 1], [3, 1], [0, 0]]
    assert first["reward"].tolist() == [0, 1 / 8, 2 / 8, 3 / 8]
    assert first["is_first"].tolist() == [True, False, False, False]
    assert first["is_last"].tolist() == [False, False, False, True]
    assert (first["is_terminal"][-1], second["is_terminal"][-1]) == (True, False)
    assert {name: array.dtype for name, array in first.items()} == {name: f.dtype for name, f in FIELDS.items()}


def test_unfinished_episodes_grow_across_collections_under_the_same_number():
    episodes, sampler = make(2), None
    live(episodes, (5, 3), 2)
    assert (episodes.ids.tolist(), episodes.lengths.tolist()) == ([0, 1], [2, 2])
    assert not episodes.ended.any()
    sampler = draw(episodes)
    check_segments(sampler.sample())
    counted = sampler.counts
    live(episodes, (5, 3), 2, first=2)
    # Environment 1 ended its first episode with its third record and is at the first of its second.
    assert episodes.ids.tolist() == [0, 1, 2]
    assert episodes.lengths.tolist() == [4, 3, 1]
    assert episodes.ended.tolist() == [False, True, False]
    assert sampler.counts.tolist() == [*counted, 0]
    assert whole(episodes, 0)["action"][-1].tolist() == [4, 1]


def test_one_call_with_several_episodes_is_cut_at_their_ends():
    one, other = make(2, capacity=200), make(2, capacity=200)
    live(one, (5, 3), 23)
    parts = [
        records(env, at // length, at % length, at % length + 1, length, terminal=at // length % 2 == 0)
        for at in range(23)
        for env, length in enumerate((5, 3))
    ]
    merged = {name: np.concatenate([part.values[name] for part in parts]) for name in FIELDS}
    other.add([Records(np.concatenate([part.env for part in parts]), merged)])
    # Numbers are given in the order of environments within a call; the episodes are the same.
    of = [sorted(whole(e, n)["observation/where"].tolist() for n in e.ids.tolist()) for e in (one, other)]
    assert of[0] == of[1]
    assert len(of[0]) == 5 + 8
    assert one.records == other.records == 46


def test_an_episode_that_was_cut_off_without_a_word_ends_at_its_last_observation():
    episodes = make()
    episodes.add([records(0, 0, 0, 3, 9)])
    add_whole(episodes, 4, first=1)
    cut = whole(episodes, 0)
    assert episodes.ended.tolist() == [True, True]
    assert cut["is_last"].tolist() == [False, False, True]
    assert not cut["is_terminal"].any()
    assert cut["action"].tolist() == [[1, 1], [2, 1], [0, 0]]
    episodes.add([records(0, 2, 0, 1, 9)])
    add_whole(episodes, 4, first=3)
    # One record without a successor is no episode.
    assert episodes.ids.tolist() == [0, 1, 3]


def test_the_oldest_that_has_ended_makes_room_and_memory_is_bounded():
    episodes = make(2, capacity=30)
    sampler = draw(episodes)
    episodes.add([records(1, 0, 0, 4, 100)])
    for index in range(40):
        add_whole(episodes, 5, first=index)
        assert episodes.records == episodes.lengths.sum() <= 30
        # The one that grows is the oldest and stays.
        assert episodes.ids[0] == 0
        assert (np.diff(episodes.ids) > 0).all()
        check_segments(sampler.sample())
        assert len(sampler.counts) == len(episodes)
    assert episodes.ids.tolist() == [0, 36, 37, 38, 39, 40]
    assert episodes.nbytes <= episodes.nbytes_full + 64 * RECORD_BYTES


def test_an_episode_longer_than_its_share_is_kept_in_parts():
    episodes = make(2, capacity=20)
    episodes.add([records(0, 0, 0, 25, 25)])
    assert episodes.longest == 10
    assert episodes.lengths.tolist() == [10, 5]
    parts = [whole(episodes, number) for number in episodes.ids.tolist()]
    assert [part["observation/where"][0, 2] for part in parts] == [11, 21]
    assert [part["is_first"].any() for part in parts] == [False, False]
    assert [part["is_last"][-1] for part in parts] == [True, True]
    assert [part["is_terminal"][-1] for part in parts] == [False, True]


def test_records_that_do_not_fit_are_refused():
    episodes = make()
    good = records(0, 0, 0, 3, 3)
    with pytest.raises(ConfigError, match=r"'rewrad' is no field.*Did you mean 'reward'"):
        episodes.add([Records(good.env, {**good.values, "rewrad": good.values["reward"]})])
    with pytest.raises(ConfigError, match="env must be 0 to 0"):
        episodes.add([Records(good.env + 1, good.values)])
    with pytest.raises(ConfigError, match=r"'observation/image' is float64"):
        episodes.add([Records(good.env, {**good.values, "observation/image": np.zeros((3, 2, 2, 3))})])
    with pytest.raises(ConfigError, match="the fields is_terminal are missing"):
        Episodes({name: field for name, field in FIELDS.items() if name != "is_terminal"}, 1, capacity=10)
    with pytest.raises(ConfigError, match="replay_size: 6 records leave 1"):
        make(4, capacity=6)


def test_what_cannot_fit_is_refused_and_what_it_takes_is_said(monkeypatch):
    told = make(capacity=1000).describe()
    assert told == {
        "replay": "1,000 records in episodes, 55.0 kB in memory when full",
        "replay_memory_bytes": 1000 * RECORD_BYTES,
    }
    told = make(capacity=1000, on_disk=True, memory=10_000).describe()
    assert told["replay"] == "1,000 records in episodes, 55.0 kB on disk before compression when full"
    assert told["replay_memory_bytes"] == 10_000
    monkeypatch.setattr(room, "available_memory", lambda: 50_000)
    with pytest.raises(ConfigError, match=r"takes 55.0 kB of memory when it is full, and 50.0 kB are available"):
        make(capacity=1000)
    make(capacity=1000, on_disk=True, memory=10_000)


def test_on_disk_the_batches_are_the_same_and_memory_holds_what_was_needed_last(tmp_path):
    memory = 4000
    pair = make(2, capacity=300), make(2, capacity=300, directory=tmp_path, memory=memory)
    samplers = [draw(episodes, alpha=2.0) for episodes in pair]
    for at in range(0, 200, 5):
        for episodes in pair:
            live(episodes, (9, 14), 5, first=at)
        assert_same(*(sampler.sample() for sampler in samplers))
        assert pair[1].nbytes <= memory + 2 * 64 * RECORD_BYTES
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {reference.name for reference in pair[1].references()}
    assert len(files) == pair[1].ended.sum()
    assert pair[1].nbytes < pair[0].nbytes


def test_without_a_directory_there_is_nowhere_to_write():
    episodes = make(on_disk=True)
    with pytest.raises(GymlabError, match="no directory for their files yet"):
        add_whole(episodes, 4)


def saved_and_loaded(tmp_path, *, before, after, seed=9):
    """Episodes with three samplers, saved in the middle, and what is made of the state; both with their samplers."""
    episodes = make(2, capacity=150, **before)
    if not episodes.on_disk:
        episodes.attach(ChunkFiles(tmp_path))
    options = ({"alpha": 5.0}, {"past_end": False}, {"length": 6, "batch_size": 3})
    samplers = [draw(episodes, str(seed), seed, **option) for seed, option in enumerate(options)]
    samplers[2].frozen = True
    for at in range(0, 90, 3):
        live(episodes, (11, 7), 3, first=at)
        for sampler in samplers:
            sampler.sample()
    states = [episodes.get_state(), *(sampler.get_state() for sampler in samplers)]
    other = make(2, capacity=150, **after)
    other.attach(ChunkFiles(tmp_path))
    others = [draw(other, str(index), seed + index, **option) for index, option in enumerate(options)]
    for buffer, state in zip([*others, other], [*states[1:], states[0]], strict=True):
        buffer.set_state(state)
    return (episodes, samplers), (other, others)


@pytest.mark.parametrize(("before", "after"), [({}, {}), ({}, {"on_disk": True}), ({"on_disk": True}, {})])
def test_resume_is_exact(tmp_path, before, after):
    if before:
        before = {"directory": tmp_path}
    (episodes, samplers), (other, others) = saved_and_loaded(tmp_path, before=before, after=after)
    assert not episodes.ended.all()
    assert others[2].frozen
    # What is evicted here must stay for the other: its files are given up at the end of the test alone.
    episodes._store._files.release = lambda reference: None
    other._store._files.release = lambda reference: None
    for at in range(90, 200, 4):
        for pair in zip(samplers, others, strict=True):
            assert_same(*(sampler.sample() for sampler in pair))
        live(episodes, (11, 7), 4, first=at)
        live(other, (11, 7), 4, first=at)
        np.testing.assert_array_equal(episodes.ids, other.ids)
    for one, two in zip(samplers, others, strict=True):
        np.testing.assert_array_equal(one.counts, two.counts)


def test_an_empty_buffer_is_saved_and_restored(tmp_path):
    episodes = make()
    episodes.attach(ChunkFiles(tmp_path))
    state = episodes.get_state()
    episodes.set_state(state)
    assert len(episodes) == 0
    add_whole(episodes, 3)
    assert len(episodes) == 1


def test_a_file_is_written_once_and_checkpoints_only_refer_to_it(tmp_path):
    episodes = make()
    episodes.attach(ChunkFiles(tmp_path), "My Episodes")
    add_whole(episodes, 5, 6)
    episodes.get_state()
    names = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(name[:21] for name in names) == ["my-episodes-00000000-", "my-episodes-00000001-"]
    assert all(name.endswith(".safetensors.z") for name in names)
    add_whole(episodes, 7, first=2)
    state = episodes.get_state()
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name in names} == names
    assert len(state["names"]) == 3
    assert state["growing"] == []


def test_files_move_to_the_directory_of_the_run(tmp_path):
    episodes = make(directory=tmp_path / "first")
    add_whole(episodes, 5, 6)
    episodes.attach(ChunkFiles(tmp_path / "second"))
    assert list((tmp_path / "first").iterdir()) == []
    assert len(list((tmp_path / "second").iterdir())) == 2
    check_segments(draw(episodes).sample())


def damaged(name, value):
    def change(state):
        state[name] = value(state[name])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged("ids", lambda ids: ids[::-1]), "numbers make no sense"),
        (damaged("ids", lambda ids: ids[1:]), "where it is"),
        (damaged("ended", lambda ended: ~ended), "where it is"),
        (damaged("growing", lambda growing: []), "numbers make no sense"),
        (damaged("growing", lambda growing: [growing[0], {}]), "does not hold what is stored"),
        (damaged("lengths", lambda lengths: lengths + 1), "differ in name, type or shape|does not hold what is stored"),
        (damaged("envs", lambda envs: envs * 0), "more than one goes on"),
        (damaged("begun", lambda begun: 0), "more than one goes on"),
        (damaged("names", lambda names: ["../../etc/passwd", *names[1:]]), "no chunk file"),
        (damaged("layout", lambda layout: {**layout, "capacity": 7}), "capacity 7, here 150"),
    ],
)
def test_a_damaged_state_is_refused(tmp_path, change, message):
    episodes = make(2, capacity=150)
    episodes.attach(ChunkFiles(tmp_path))
    live(episodes, (11, 7), 40)
    state = episodes.get_state()
    change(state)
    with pytest.raises(CheckpointError, match=message):
        make_with(tmp_path).set_state(state)


def make_with(directory):
    other = make(2, capacity=150)
    other.attach(ChunkFiles(directory))
    return other


def test_a_damaged_file_is_named(tmp_path):
    episodes = make(directory=tmp_path, memory=500)
    add_whole(episodes, 5, 6, 7)
    state = episodes.get_state()
    path = tmp_path / state["names"][0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=path.name):
        episodes.gather(np.array([0]), np.array([0]), 3)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path.name} cannot be read"):
        make(directory=tmp_path, memory=500).set_state(state)
