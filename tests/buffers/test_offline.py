"""Minari datasets arrive in the replay as they were recorded."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest

from gymlab.buffers.offline import OfflineDataset, as_floats, observation_fields, one_hot, open_dataset
from gymlab.buffers.sequence import Field, SequenceReplay
from gymlab.envs.extras import NEEDS
from gymlab.errors import GymlabError

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
from minari.data_collector import EpisodeBuffer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Author, contact and such are not given.

FLAGS = {name: Field((), np.bool_) for name in ("is_first", "is_last", "is_terminal")}
DISCRETE = gym.spaces.Discrete(3, start=1)
ENDINGS = ("terminated", "truncated", "both", "terminated")


def observations(space, rows, first):
    """Counters at every leaf of a space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: observations(part, rows, first) for key, part in space.spaces.items()}
    count = (first + np.arange(rows)).reshape(rows, *(1 for _ in space.shape))
    return np.broadcast_to(count, (rows, *space.shape)).astype(space.dtype)


def write(root, monkeypatch, space, actions=DISCRETE, lengths=(3, 5, 1, 4), dataset_id="test/counting-v0"):
    """Episodes of so many actions; observations count on from one to the next, rewards too."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    buffers, first = [], 0
    for number, (length, ending) in enumerate(zip(lengths, ENDINGS, strict=True)):
        flags = np.zeros((2, length), bool)
        flags[:, -1] = ending in ("terminated", "both"), ending in ("truncated", "both")
        taken = np.arange(length) % 3 + 1 if isinstance(actions, gym.spaces.Discrete) else np.full((length, 2), 0.5)
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=observations(space, length + 1, first),
                actions=taken.astype(actions.dtype),
                rewards=(first + np.arange(length) + 0.125).tolist(),
                terminations=flags[0],
                truncations=flags[1],
            )
        )
        first += length + 1
    minari.create_dataset_from_buffers(dataset_id, buffers, observation_space=space, action_space=actions)
    return root / dataset_id


VECTOR = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    write(tmp_path, monkeypatch, VECTOR)
    return open_dataset("test/counting-v0")


def replay_for(dataset, num_envs=1, action_size=3, **options):
    fields = {
        **observation_fields(dataset.observation_space),
        "action": Field((action_size,), np.float32),
        "reward": Field((), np.float32),
        **FLAGS,
    }
    settings = {"capacity": 100 * num_envs, "batch_size": 64, "length": 3, "online": False}
    return SequenceReplay(fields, num_envs, np.random.default_rng(0), **settings | options)


def test_an_episode_of_n_actions_is_n_plus_1_records(dataset):
    assert (dataset.total_episodes, dataset.total_steps) == (4, 13)
    assert not dataset.lossy_images
    first, second, third, _ = (episode.records(one_hot(dataset.action_space), env=7) for episode in dataset)
    assert first.env.tolist() == [7] * 4
    assert first.values["observation/observation"][:, 0].tolist() == [0, 1, 2, 3]
    assert first.values["action"].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert first.values["reward"].tolist() == [0, 0.125, 1.125, 2.125]
    assert first.values["is_first"].tolist() == [True, False, False, False]
    assert first.values["is_last"].tolist() == [False, False, False, True]
    assert first.values["is_terminal"].tolist() == [False, False, False, True]
    assert second.values["is_last"].tolist() == [False] * 5 + [True]
    assert not second.values["is_terminal"].any()
    assert third.values["is_terminal"].tolist() == [False, True]


@pytest.mark.parametrize("on_disk", [False, True])
def test_endings_and_rewards_survive_in_the_replay(dataset, tmp_path, on_disk):
    replay = replay_for(dataset, chunk=4, length=2, directory=tmp_path / "chunks" if on_disk else None)
    assert dataset.fill(replay, one_hot(dataset.action_space)) == 17
    records = {}
    for _ in range(10):
        batch = replay.sample()
        index = batch.values["observation/observation"][..., 0].astype(int)
        for row, place in np.ndindex(index.shape):
            if place:
                records[index[row, place]] = {name: array[row, place] for name, array in batch.values.items()}
    assert sorted(records) == list(range(1, 17))
    assert {i for i in records if records[i]["is_terminal"]} == {3, 11, 16}
    assert {i for i in records if records[i]["is_last"]} == {3, 9, 11, 16}
    assert {i for i in records if records[i]["is_first"]} == {4, 10, 12}
    rewards = sum(records[i]["reward"] for i in records)
    assert rewards == pytest.approx(sum(episode.rewards.sum() for episode in dataset))


def test_episodes_are_spread_over_the_streams(dataset):
    replay = replay_for(dataset, 2)
    dataset.fill(replay, one_hot(dataset.action_space))
    # Lengths 4, 6, 2, 5: the first, the third and the fourth go to stream 0, 0 and, at 6 against 6, again to 0.
    assert [stream.written for stream in replay._streams] == [11, 6]


def test_pictures_dicts_and_continuous_actions(tmp_path, monkeypatch):
    space = gym.spaces.Dict(
        image=gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
        inner=gym.spaces.Dict(place=gym.spaces.Box(-1, 99, (2,), np.float64), steps=gym.spaces.Discrete(100)),
    )
    actions = gym.spaces.Box(-1, 1, (2,), np.float32)
    write(tmp_path, monkeypatch, space, actions)
    dataset = open_dataset("test/counting-v0", tmp_path)
    assert dataset.lossy_images
    assert observation_fields(dataset.observation_space) == {
        "observation/image": Field((4, 4, 3), np.uint8),
        "observation/inner/place": Field((2,), np.float32),
        "observation/inner/steps": Field((), np.int64),
    }
    replay = replay_for(dataset, action_size=2)
    dataset.fill(replay, as_floats(actions))
    batch = replay.sample()
    steps = batch.values["observation/inner/steps"]
    assert batch.values["observation/image"].dtype == np.uint8
    assert np.abs(batch.values["observation/image"][..., 0, 0, 0].astype(int) - steps).max() <= 2
    np.testing.assert_array_equal(batch.values["observation/inner/place"][..., 1], steps)
    np.testing.assert_array_equal(batch.values["action"][..., 0] == 0.5, ~batch.values["is_last"])


def test_what_gymlab_record_writes_is_read(tmp_path):
    import gymlab
    from gymlab.engine.demonstrations import record

    settings = {"max_env_steps": 64, "n_envs": 2, "n_steps": 32, "batch_size": 64, "eval_freq_epochs": None}
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, eval_episodes=1, video=False, quiet=True, **settings)
    recorded = record(run.agent, tmp_path / "demos", "cartpole/some-v0", episodes=3)
    dataset = open_dataset("cartpole/some-v0", tmp_path / "demos")
    assert [episode.rewards.sum() for episode in dataset] == recorded.returns
    assert all(episode.terminated for episode in dataset)
    replay = replay_for(dataset, action_size=2, capacity=2000)
    assert dataset.fill(replay, one_hot(dataset.action_space)) == recorded.steps + 3 == len(replay)


def test_an_unknown_dataset_lists_those_there_are(dataset, tmp_path):
    with pytest.raises(GymlabError, match=r"'test/countin-v0'.*Did you mean 'test/counting-v0'.*gymlab record"):
        open_dataset("test/countin-v0", tmp_path)
    with pytest.raises(GymlabError, match="No dataset"):
        open_dataset("../counting-v0", tmp_path / "test" / "other")


def test_a_dataset_without_its_spaces_is_refused_rather_than_its_environment_made(dataset):
    path = dataset.directory / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    hostile = {"id": "X-v0", "entry_point": "os:system", "kwargs": {"command": "touch owned"}}
    path.write_text(json.dumps({**metadata, "observation_space": None, "env_spec": json.dumps(hostile)}))
    with pytest.raises(GymlabError, match="does not say observation_space"):
        OfflineDataset(dataset.directory)
    for damage in ("{", "[]", "5", "[" * 100_000):
        path.write_text(damage)
        with pytest.raises(GymlabError, match=r"metadata\.json"):
            OfflineDataset(dataset.directory)


@pytest.mark.parametrize(("name", "value"), [("rewards", [1.0]), ("terminations", [True, False, True])])
def test_a_damaged_episode_is_named(dataset, name, value):
    import h5py

    with h5py.File(dataset.directory / "data" / "main_data.hdf5", "r+") as file:
        del file[f"episode_0/{name}"]
        file[f"episode_0/{name}"] = np.array(value)
    with pytest.raises(GymlabError, match=r"Episode 0 of .* is damaged"):
        next(iter(OfflineDataset(dataset.directory)))


def test_without_minari_the_error_is_the_pip_line(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(GymlabError) as error:
        OfflineDataset(dataset.directory)
    assert NEEDS["offline"].pip_lines[0] in str(error.value)
