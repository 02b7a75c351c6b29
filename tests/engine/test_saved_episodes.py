"""Episodes that a run has saved."""

import gymnasium as gym
import numpy as np
import pytest

import gymlab
from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.sequence import Field, Records, SequenceReplay
from gymlab.engine.agent import load_best
from gymlab.engine.saved_episodes import RecordStream, saved_episodes
from gymlab.errors import CheckpointError


def test_episodes_of_training_are_those_that_were_played(dreaming_runs):
    run, agent = load_best("dreamer", runs_dir=dreaming_runs)
    entries = saved_episodes(run, agent)
    splits = [entry.split for entry in entries]
    assert splits == ["test"] + ["train"] * (len(entries) - 1)
    train = entries[1:]
    # 128 steps in two environments, of which each episode but an unfinished one has one record more.
    assert sum(entry.length for entry in train) in (126, 127, 128)
    assert [entry.ending for entry in train].count("unfinished") <= 2
    model = gym.make("CartPole-v1").unwrapped
    model.reset()
    episode = next(entry for entry in train if entry.ending == "terminated").load()
    assert episode.rewards.tolist() == [1.0] * episode.steps
    assert len(episode.observations) == len(episode.actions) + 1 == episode.steps + 1
    for before, action, after in zip(episode.observations, episode.actions, episode.observations[1:], strict=False):
        model.state = before.astype(np.float64)
        model.steps_beyond_terminated = None
        np.testing.assert_allclose(model.step(int(action))[0], after, atol=1e-5)
    assert abs(episode.observations[-1][2]) > 0.2


def test_a_film_of_a_test_is_read_as_it_is_looked_at(dreaming_runs):
    run, agent = load_best("dreamer", runs_dir=dreaming_runs)
    entry = saved_episodes(run, agent)[0]
    assert (entry.split, entry.source, entry.name, entry.length) == ("test", "video", "final", None)
    episode = entry.load()
    assert 1 <= episode.steps <= 12
    assert episode.frames[episode.steps].shape == (400, 600, 3)
    first = episode.frames[0]
    np.testing.assert_array_equal(episode.frames[0], first)
    with pytest.raises(IndexError):
        episode.frames[episode.steps + 1]
    episode.frames.close()


def test_kept_episodes_are_listed_with_what_is_known_of_them(tmp_path):
    run = gymlab.train(
        "CartPole-v1:ppo", runs_dir=tmp_path, n_envs=2, n_steps=64, batch_size=64, max_env_steps=256, keep_episodes=1, quiet=True, video=False
    )  # fmt: skip
    kept = [entry for entry in saved_episodes(run, run.agent) if entry.source == "kept"]
    assert {(entry.split, entry.name.partition(",")[0]) for entry in kept} >= {("train", "best"), ("train", "last")}
    for entry in kept:
        episode = entry.load()
        assert episode.steps == entry.length == len(episode.actions)
        assert episode.rewards.sum() == entry.env_return
        assert entry.ending == "terminated"


def test_records_are_read_across_chunks(tmp_path):
    fields = {"x": Field((2,), np.float32)}
    replay = SequenceReplay(
        fields, 1, np.random.default_rng(0), capacity=12, batch_size=1, length=1, context=0, chunk=4, prefetch=False
    )
    files = ChunkFiles(tmp_path)
    replay.attach(files)
    rows = np.arange(44, dtype=np.float32).reshape(22, 2)
    replay.add([Records(np.zeros(22, np.int64), {"x": rows})])
    state = replay.get_state()
    stream = RecordStream(state["streams"][0], state["layout"], files)
    assert (stream.oldest, stream.written) == (10, 22)
    for start, stop in ((10, 22), (11, 12), (12, 16), (13, 21), (20, 22)):
        np.testing.assert_array_equal(stream.column("x", start, stop), rows[start:stop])
    with pytest.raises(CheckpointError, match="damaged"):
        RecordStream({**state["streams"][0], "records": []}, state["layout"], files)
