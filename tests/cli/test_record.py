"""`gymlab record`: datasets that Minari reads back as they were played."""

import json
import sys

import numpy as np
import pytest

from gymlab.engine.demonstrations import _make_places, record
from gymlab.engine.trace import play_episodes
from gymlab.envs.extras import NEEDS

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")

ID = "cartpole-v1/ppo-v0"


@pytest.fixture
def load(monkeypatch):
    """Load a dataset below a folder, as a user does."""

    def call(root, dataset_id=ID):
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
        return minari.load_dataset(dataset_id)

    return call


def test_a_dataset_read_back_has_the_rewards_that_were_played(cli, trained, tmp_path, load, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shown = cli("record", "tiny", "--episodes", "3", "--out", "demos", "--seed", "5", "--runs-dir", trained, "--json")
    assert shown.code == 0, shown.err
    made = shown.json()
    assert made["dataset_id"] == ID
    played = cli("play", "tiny", "--headless", "--episodes", "3", "--seed", "5", "--runs-dir", trained, "--json").json()
    returns = [episode["return"] for episode in played["episodes"]]
    assert made["returns"] == returns
    dataset = load(tmp_path / "demos")
    assert dataset.total_episodes == 3
    assert dataset.total_steps == made["steps"] == sum(returns)
    for episode, expected in zip(dataset, returns, strict=True):
        length = int(expected)
        assert episode.rewards.tolist() == [1.0] * length
        assert episode.observations.shape == (length + 1, 4)
        assert episode.actions.shape == (length,)
        assert episode.terminations.tolist() == [False] * (length - 1) + [True]
        assert not episode.truncations.any()
    assert not (tmp_path / "home").exists()
    assert [path.name for path in (tmp_path / "demos").iterdir()] == ["cartpole-v1"]


def test_the_episode_can_be_played_again_from_its_seed(cli, trained, tmp_path, load):
    assert cli("record", "tiny", "--episodes", "1", "--runs-dir", trained, "--stochastic").code == 0
    dataset = load(tmp_path / "demos")
    (episode,) = dataset
    (metadata,) = dataset.storage.get_episode_metadata([0])
    env = dataset.recover_environment()
    observation, _ = env.reset(seed=metadata["seed"])
    assert observation.tolist() == episode.observations[0].tolist()
    for step, action in enumerate(episode.actions):
        observation, reward, terminated, _, _ = env.step(action)
        assert observation.tolist() == episode.observations[step + 1].tolist()
        assert reward == episode.rewards[step]
    assert terminated == episode.terminations[-1]
    assert env.spec.max_episode_steps == 500


def test_metadata(cli, trained, tmp_path, load):
    assert cli("record", "tiny", "--episodes", "2", "--dataset-id", "my/own/expert-v3", "--runs-dir", trained).code == 0
    metadata = load(tmp_path / "demos", "my/own/expert-v3").storage.metadata
    assert metadata["algorithm_name"] == "ppo"
    assert json.loads(metadata["env_spec"])["id"] == "CartPole-v1"
    assert metadata["checkpoint"].startswith("tiny/epoch=")
    assert metadata["seed"] == 0
    assert metadata["mean_return"] > 0
    assert not {"author", "author_email", "code_permalink"} & metadata.keys()
    assert str(tmp_path) not in json.dumps(metadata, default=str)


def test_a_dataset_is_not_replaced_unasked(cli, trained, tmp_path, load):
    arguments = ("record", "tiny", "--episodes", "1", "--runs-dir", trained)
    assert cli(*arguments).code == 0
    again = cli(*arguments)
    assert again.code == 2
    assert "--overwrite" in again.err
    assert cli(*arguments, "--episodes", "2", "--overwrite").code == 0
    assert load(tmp_path / "demos").total_episodes == 2
    (tmp_path / "demos" / "notes-v0").mkdir()
    foreign = cli(*arguments, "--dataset-id", "notes-v0", "--overwrite")
    assert foreign.code == 2
    assert "no Minari dataset" in foreign.err


@pytest.mark.parametrize("dataset_id", ["cartpole", "../x-v0", "/x-v0", "a b-v0", "x-v"])
def test_ids_that_minari_would_not_take(cli, trained, dataset_id):
    shown = cli("record", "tiny", "--dataset-id", dataset_id, "--runs-dir", trained)
    assert shown.code == 2
    assert "cartpole/expert-v0" in shown.err


def test_what_the_environment_says_and_what_the_agent_sees(tmp_path, load):
    """Frame skip, stack and a shaped reward: the environment's own reward is summed over the skipped steps."""
    import gymlab

    run = gymlab.train(
        "CartPole-v1:ppo",
        runs_dir=tmp_path / "runs",
        max_env_steps=64,
        n_envs=2,
        n_steps=32,
        batch_size=64,
        eval_freq_epochs=None,
        eval_episodes=1,
        frame_skip=2,
        frame_stack=3,
        env_wrappers=[{"id": "ActionRewardShaper", "rewards": [5, 7]}],
        video=False,
        quiet=True,
    )
    own = record(run.agent, tmp_path / "demos", "own-v0", episodes=2, deterministic=True)
    seen = record(run.agent, tmp_path / "demos", "seen-v0", episodes=2, deterministic=True, observations="agent")
    assert own.returns == seen.returns
    first, other = load(tmp_path / "demos", "own-v0")[0], load(tmp_path / "demos", "seen-v0")[0]
    assert first.observations.shape[1:] == (4,)
    assert other.observations.shape[1:] == (12,)
    np.testing.assert_array_equal(first.observations, other.observations[:, -4:])
    assert set(first.rewards[:-1]) == {2.0}
    assert first.rewards.sum() == own.returns[0]
    assert load(tmp_path / "demos", "own-v0").storage.metadata.get("env_spec") is None


def test_pictures_are_read_back_exactly_and_lie_compressed(tmp_path, load):
    import h5py

    import gymlab

    agent = gymlab.train(
        "CartPole-v1:ppo_pixels",
        runs_dir=tmp_path / "runs",
        max_env_steps=32,
        n_envs=2,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        eval_freq_epochs=None,
        eval_episodes=1,
        eval_max_episode_steps=8,
        video=False,
        quiet=True,
    ).agent
    made = record(agent, tmp_path / "demos", "pixels-v0", episodes=2, deterministic=True, observations="agent", seed=3)
    played = list(play_episodes(agent, seed=3, episodes=2, render=False))
    dataset = load(tmp_path / "demos", "pixels-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (2, len(played))
    for number, episode in enumerate(dataset):
        steps = [step for step in played if step.episode == number]
        seen = [*(step.observation for step in steps), steps[-1].final_observation]
        np.testing.assert_array_equal(episode.observations, np.stack(seen), strict=True)
        assert episode.actions.tolist() == [step.action for step in steps]
        assert episode.rewards.tolist() == [step.reward for step in steps]
    with h5py.File(made.path / "data" / "main_data.hdf5") as file:
        pictures = file["episode_1/observations"]
        assert pictures.compression == "gzip"
        assert pictures.id.get_storage_size() < pictures.nbytes / 5


def test_parts_of_an_observation_that_are_pictures_are_compressed(tmp_path):
    import h5py

    frames = np.zeros((3, 8, 8, 3), np.uint8)
    with h5py.File(tmp_path / "episode.hdf5", "w") as file:
        _make_places(
            file, "observations", {"eye": frames, "both": (frames[..., 0], np.zeros((3, 2))), "n": np.zeros(3)}
        )
        assert file["observations/eye"].compression == "gzip"
        assert file["observations/both/_index_0"].maxshape == (None, 8, 8)
        assert set(file["observations/both"]) == {"_index_0"}
        assert "n" not in file["observations"]


def test_an_interrupted_recording_leaves_nothing(trained, tmp_path):
    import gymlab

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(gymlab.load("tiny", runs_dir=trained), tmp_path / "demos", ID, episodes=2, after_episode=interrupt)
    assert list((tmp_path / "demos").iterdir()) == []


def test_without_minari_the_error_is_the_pip_line(cli, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    shown = cli("record", "tiny", "--runs-dir", trained)
    assert shown.code == 2
    assert NEEDS["offline"].pip_lines[0] in shown.err
