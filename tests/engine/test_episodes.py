"""Kept episodes: the best and the last, of training and evaluation, safe to read and bounded in number."""

import numpy as np
import pytest
import replaying  # noqa: F401 (registers the workflow)
from test_chunk_store import SETTINGS

import gymlab
from gymlab.buffers.tensor_files import pack
from gymlab.engine.callbacks.episodes import Shelf
from gymlab.engine.episodes import Episode, list_episodes, read_episode, write_episode
from gymlab.envs.episode_tap import Lived
from gymlab.envs.step import Episode as EndedEpisode
from gymlab.errors import CheckpointError


def episode(length=3, env_return=1.5, **fields):
    return Episode(
        observations=np.arange((length + 1) * 12, dtype=np.uint8).reshape(length + 1, 2, 2, 3),
        actions=np.arange(length),
        rewards=np.full(length, 0.5, np.float32),
        **{"terminated": True, "env_return": env_return, "epoch": 4, **fields},
    )


def test_an_episode_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "train" / "best-000001.safetensors.z"
    write_episode(path, episode(terminated=False))
    found = read_episode(path)
    for name in ("observations", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(found, name), getattr(episode(), name))
        assert getattr(found, name).dtype == getattr(episode(), name).dtype
    assert (found.terminated, found.truncated, found.env_return, found.epoch, found.length) == (False, True, 1.5, 4, 3)


def test_an_episode_of_a_run_that_is_gone_does_not_bring_it_back(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_episode(tmp_path / "run" / "episodes" / "test" / "last-000001.safetensors.z", episode())
    assert list(tmp_path.iterdir()) == []


ARRAYS = {"observations": np.zeros((3, 4)), "actions": np.zeros(2, np.int64), "rewards": np.zeros(2, np.float32)}
NOTES = {"return": "1.0", "epoch": "3", "terminated": "true"}


@pytest.mark.parametrize(
    ("arrays", "notes", "message"),
    [
        ({"actions": ARRAYS["actions"]}, NOTES, "is no episode: it holds actions"),
        ({**ARRAYS, "more": np.zeros(1)}, NOTES, "is no episode"),
        ({**ARRAYS, "rewards": np.array(1.0)}, NOTES, "is no episode"),
        ({**ARRAYS, "rewards": np.zeros(3)}, NOTES, "2 actions do not fit"),
        ({**ARRAYS, "observations": np.zeros((2, 4))}, NOTES, "2 actions do not fit"),
        (
            {"observations": np.zeros((1, 4)), "actions": np.zeros(0), "rewards": np.zeros(0)},
            NOTES,
            "0 actions do not fit",
        ),
        (ARRAYS, {}, "does not tell return"),
        (ARRAYS, {**NOTES, "return": "much"}, "does not tell return"),
        (ARRAYS, {**NOTES, "return": "nan"}, "makes no sense"),
        (ARRAYS, {**NOTES, "epoch": "-1"}, "makes no sense"),
        (ARRAYS, {**NOTES, "terminated": "yes"}, "does not tell return"),
    ],
)
def test_what_is_no_episode_is_refused_and_passed_over_in_a_list(tmp_path, caplog, arrays, notes, message):
    directory = tmp_path / "episodes" / "test"
    write_episode(directory / "last-000001.safetensors.z", episode())
    path = directory / "last-000002.safetensors.z"
    path.write_bytes(pack(arrays, notes))
    with pytest.raises(CheckpointError, match=message) as error:
        read_episode(path)
    assert str(path) in str(error.value)
    assert [found.number for found in list_episodes(tmp_path)] == [1]
    assert path.name in caplog.text


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="last-000009"):
        read_episode(tmp_path / "last-000009.safetensors.z")


def test_a_list_is_in_the_order_in_which_people_look(tmp_path):
    assert list_episodes(tmp_path) == []
    for split, kind, number, env_return in (
        ("test", "best", 3, 1.0),
        ("train", "last", 1, 0.0),
        ("train", "last", 2, -1.0),
        ("train", "best", 0, 2.0),
        ("train", "best", 1, 5.0),
    ):
        path = tmp_path / "episodes" / split / f"{kind}-{number:06d}.safetensors.z"
        write_episode(path, episode(number + 1, env_return))
    (tmp_path / "episodes" / "train" / "notes.txt").write_text("mine")
    (tmp_path / "episodes" / "train" / "best-000007.safetensors.z").symlink_to("best-000001.safetensors.z")
    found = list_episodes(tmp_path)
    assert [(f.split, f.kind, f.number, f.env_return, f.length) for f in found] == [
        ("train", "best", 1, 5.0, 2),
        ("train", "best", 0, 2.0, 1),
        ("train", "last", 2, -1.0, 3),
        ("train", "last", 1, 0.0, 2),
        ("test", "best", 3, 1.0, 4),
    ]
    assert [read_episode(f.path).length for f in found] == [f.length for f in found]


def take(shelf, *returns):
    for env_return in returns:
        lived = Lived([np.zeros(2), np.ones(2)], [np.array(1)], [env_return])
        shelf.take(lived, EndedEpisode(0, 0, env_return, env_return, 1, False))


def kept(directory, kind):
    return {f.number: f.env_return for f in list_episodes(directory) if f.kind == kind}


def test_the_best_and_the_last_stay(tmp_path):
    directory = tmp_path / "episodes" / "train"
    shelf = Shelf(directory, "train", 2)
    shelf.open(0)
    take(shelf, 5.0, 1.0, 3.0, 2.0, 0.0, float("nan"))
    assert len(shelf._new) <= 5
    shelf.write(1)
    assert kept(tmp_path, "best") == {0: 5.0, 2: 3.0}
    assert kept(tmp_path, "last") == {4: 0.0}
    take(shelf, 4.0, 4.0)
    shelf.write(2)
    assert kept(tmp_path, "best") == {0: 5.0, 7: 4.0}
    assert kept(tmp_path, "last") == {6: 4.0, 7: 4.0}
    # A run that goes on, and one that goes back to the first epoch.
    again = Shelf(directory, "train", 2)
    again.open(2)
    take(again, 4.5)
    again.write(3)
    assert kept(tmp_path, "best") == {0: 5.0, 8: 4.5}
    assert kept(tmp_path, "last") == {7: 4.0, 8: 4.5}
    back = Shelf(directory, "train", 2)
    back.open(1)
    assert kept(tmp_path, "best") == {0: 5.0}
    assert kept(tmp_path, "last") == {}


FIELDS = {**SETTINGS, "max_env_steps": 6 * 64, "keep_episodes": 2, "eval_episodes": 3, "eval_max_episode_steps": 9}


def test_a_run_keeps_episodes_of_training_and_evaluation_without_changing(tmp_path):
    run, plain = (
        gymlab.train("CartPole-v1", runs_dir=tmp_path, run_id=f"run{count}", **{**FIELDS, "keep_episodes": count})
        for count in (2, 0)
    )
    assert not (plain.dir / "episodes").exists()
    found = list_episodes(run.dir)
    assert [(f.split, f.kind) for f in found] == [
        (split, kind) for split in ("train", "test") for kind in ("best", "last") for _ in range(2)
    ]
    for file in found:
        lived = read_episode(file.path)
        assert lived.observations.shape == (file.length + 1, 4)
        assert lived.actions.shape == (file.length,)
        assert lived.rewards.sum() == lived.env_return == file.env_return == file.length
    best = [f for f in found if f.kind == "best"]
    assert best[0].env_return == max(plain.metrics["train/roll/ep_rew/best"])
    assert best[2].length == 9
    assert not best[2].terminated
    rows = [{k: v for k, v in each.metrics.items() if not k.startswith("sys/")} for each in (run, plain)]
    assert rows[0] == rows[1]
    resumed = gymlab.resume("run2", epoch=2, runs_dir=tmp_path)
    again = list_episodes(resumed.dir)
    assert max(f.epoch for f in again) == resumed.metrics["train/cnt/epoch"][-1]
    assert [f.split for f in again if f.kind == "last"] == ["train", "train", "test", "test"]
