"""N steps = k steps + stop + resume + the rest, bit for bit."""

import json

import pytest
import torch

import gymlab
from gymlab.errors import CheckpointError, ConfigError

SMALL = {
    "n_envs": 8,
    "n_steps": 32,
    "quiet": True,
    "video": False,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
}
TINY = {**SMALL, "batch_size": 64, "n_epochs": 2}
DREAMS = {
    "n_envs": 2,
    "deter": 16,
    "hidden": 8,
    "units": 8,
    "stoch": 4,
    "horizon": 3,
    "batch_length": 8,
    "train_ratio": 8,
    "prefill_steps": 64,
    "epoch_env_steps": 32,
    "max_env_steps": 256,
    "replay_size": 200,
    "torch_threads": 1,
    "keep_checkpoints": 9,
}
"""A replay that is full before the end: what is evicted must be the same too."""
PLANS = {
    "n_envs": 2,
    "max_env_steps": 256,
    "epoch_env_steps": 32,
    "seed_steps": 64,
    "latent": 16,
    "hidden": 16,
    "encoder_hidden": 16,
    "plan_samples": 12,
    "plan_policy_samples": 4,
    "plan_elites": 4,
    "plan_iterations": 2,
    "replay_size": 200,
    "torch_threads": 1,
    "keep_checkpoints": 9,
}
KINDS = {
    "native": ("CartPole-v1:ppo", {}),
    "normalised": ("CartPole-v1:ppo", {"normalize_obs": "rolling", "normalize_reward": True}),
    "replayed": ("Acrobot-v1:ppo", {"n_envs": 2, "vectorization_mode": "sync"}),
    "workers": ("Acrobot-v1:ppo", {"n_envs": 2, "vectorization_mode": "async"}),
    "workers in halves": (
        "Acrobot-v1:ppo",
        {
            "n_envs": 4,
            "env_workers": 2,
            "double_buffer": True,
            "vectorization_mode": "async",
            "normalize_obs": "rolling",
        },
    ),
    "frames": (
        "CartPole-v1:ppo_pixels",
        {
            "n_envs": 1,
            "max_env_steps": 64,
            "torch_threads": 1,
            "policy_kwargs": {"channels": [4, 4, 4], "hidden_dims": [8]},
        },
    ),
    "stored rollouts": ("CartPole-v1:ppo", {"replay_ratio": 2, "replay_buffer_size": 512}),
    "cut episodes": ("CartPole-v1:reinforce", {"unfinished": "bootstrap"}),
    "whole episodes": ("CartPole-v1:reinforce", {"normalize_reward": True, "max_env_steps": 5000}),
    "whole episodes, replayed": (
        "CartPole-v1:reinforce",
        {"vectorization_mode": "sync", "n_envs": 2, "max_env_steps": 5000},
    ),
    "running mean": ("CartPole-v1:reinforce_episode", {"normalize_returns": "baseline", "max_env_steps": 5000}),
    "dreams": ("CartPole-v1:dreamer_v3", DREAMS),
    "dreams of pictures": (
        "MiniGrid-Empty-8x8-v0:dreamer_v3_pixels",
        {
            **DREAMS,
            "cnn_depth": 2,
            "max_env_steps": 128,
            "epoch_env_steps": 16,
            "prefill_steps": 32,
            "vectorization_mode": "sync",
        },
    ),
    "dreams of the first kind": (
        "Pendulum-v1:dreamer_v1",
        {**DREAMS, "replay_on_disk": True, "vectorization_mode": "sync"},
    ),
    "plans": ("Pendulum-v1:tdmpc2", PLANS),
    "plans of the first version": ("Pendulum-v1:tdmpc", PLANS),
    "plans of choices": ("CartPole-v1:tdmpc2", {**PLANS, "vectorization_mode": "sync"}),
    "scheduled": ("CartPole-v1:ppo", {"policy_lr": "lin_0.001"}),
    "table": ("FrozenLake-v1:q_learning", {}),
    "table with masks": ("Taxi-v4:q_learning", {"n_envs": 2}),
    "table with masks, replayed": ("Taxi-v4:q_learning", {"n_envs": 2, "vectorization_mode": "sync"}),
}


def everything(run):
    """Parameters, optimizer, counters and metrics of the end of a run, without the clock."""
    checkpoint = run.checkpoints.find()
    rows = {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}
    return checkpoint.read_model(), checkpoint.read_part("optimizer"), checkpoint.read_state()["counters"], rows


def assert_equal(first, second):
    (model, optimizer, counters, rows), (other_model, other_optimizer, other_counters, other_rows) = (
        everything(first),
        everything(second),
    )
    assert counters == other_counters
    assert rows == other_rows
    for name, tensor in model.items():
        assert torch.equal(tensor, other_model[name]), name
    assert optimizer.keys() == other_optimizer.keys()
    for part in optimizer:
        for index, states in optimizer[part]["state"].items():
            for name, state in states.items():
                other = other_optimizer[part]["state"][index][name]
                assert torch.equal(state, other) if torch.is_tensor(state) else state == other, (part, name)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_equals_uninterrupted(tmp_path, kind):
    """A run goes back to epoch 4 of 8 and on from there: what came after is given up and comes again the same."""
    experiment, fields = KINDS[kind]
    settings = {**SMALL, **fields, "seed": 7, "eval_freq_epochs": 2, "early_stop_on_eval_threshold": False}
    budget = settings.get("max_env_steps", 8 * 256)
    rollout = min(256, budget // 8)
    settings |= {"keep_checkpoints": 9, "max_env_steps": budget}
    sequences = "dreamer" in experiment or "tdmpc" in experiment
    if sequences:
        del settings["n_steps"]
        settings |= {"batch_size": 4}
    else:
        settings |= {"n_steps": rollout // settings["n_envs"]}
    if "q_learning" not in experiment and not sequences:
        settings |= {"batch_size": min(64, rollout), "n_epochs": 2}
    whole = gymlab.train(experiment, runs_dir=tmp_path, run_id="whole", **settings)
    gymlab.train(experiment, runs_dir=tmp_path, run_id="cut", **settings)
    resumed = gymlab.resume("cut", epoch=4, runs_dir=tmp_path)
    assert resumed.id == "cut"
    # Rollouts of whole episodes are longer than n_steps: how many the budget holds is not known beforehand.
    epochs = resumed.record["counters"]["epoch"]
    assert epochs == 8 or (epochs > 4 and "max_env_steps" in fields)
    # Where the budget ends in the middle of an epoch, that one has a row too.
    broken_off = [] if not sequences else resumed.metrics["train/cnt/epoch"][epochs:]
    assert resumed.metrics["train/cnt/epoch"] == [*range(1, epochs + 1), *broken_off]
    assert broken_off in ([], [epochs + 1])
    assert resumed.record["resumed"][0]["from"] == "epoch=0004.ckpt"
    assert_equal(whole, resumed)


def test_a_finished_run_can_be_extended(tmp_path):
    gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", max_env_steps=512, eval_freq_epochs=None, **TINY)
    longer = gymlab.resume("one", runs_dir=tmp_path, max_env_steps=1024)
    assert longer.metrics["train/cnt/env_steps"] == [256, 512, 768, 1024]
    assert "Changed: max_env_steps: 512 -> 1024" in (longer.dir / "report.md").read_text()
    for clock in ("sys/time/wall", "sys/time/cpu"):
        seconds = longer.metrics[clock]
        assert seconds == sorted(seconds), f"{clock} goes on where the run left off"


def test_what_would_make_it_another_run_is_refused_by_name(tmp_path):
    run = gymlab.train(
        "CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", max_env_steps=512, eval_freq_epochs=None, **TINY
    )
    before = (run.dir / "metrics.csv").read_text()
    with pytest.raises(ConfigError, match=r"optimizer cannot change.*max_env_steps.*`gymlab set` changes: gamma"):
        gymlab.resume("one", runs_dir=tmp_path, optimizer="sgd")
    assert (run.dir / "metrics.csv").read_text() == before


@pytest.mark.parametrize("experiment", ["CartPole-v1:ppo", "CartPole-v1:reinforce"])
def test_a_run_of_an_earlier_release_goes_on_with_the_decay_it_was_begun_with(tmp_path, experiment):
    """There was no key, and torch's AdamW took 0.01. What the checkpoint holds counts, and the config says so from then on."""
    settings = {**TINY, "seed": 7, "max_env_steps": 1024, "eval_freq_epochs": 1, "keep_checkpoints": 9}
    settings |= {"early_stop_on_eval_threshold": False, "unfinished": "bootstrap"} if "reinforce" in experiment else {}
    settings |= {"early_stop_on_eval_threshold": False, "weight_decay": 0.01}
    whole = gymlab.train(experiment, runs_dir=tmp_path, run_id="whole", **settings)
    old = gymlab.train(experiment, runs_dir=tmp_path, run_id="old", **settings)
    for name in ("config.start.json", "config.json"):
        config = json.loads((old.dir / name).read_text())
        assert config.pop("weight_decay") == 0.01
        (old.dir / name).write_text(json.dumps(config))
    with pytest.raises(
        ConfigError, match=r"weight_decay cannot change when a run goes on: it was 0\.01, asked for is 0\.0"
    ):
        gymlab.resume("old", epoch=2, runs_dir=tmp_path, weight_decay=0)
    resumed = gymlab.resume("old", epoch=2, runs_dir=tmp_path)
    assert_equal(whole, resumed)
    for name in ("config.start.json", "config.json"):
        assert json.loads((old.dir / name).read_text())["weight_decay"] == 0.01
    assert "weight_decay is 0.01, as in the release that the run was begun with." in (old.dir / "run.log").read_text()
    assert gymlab.load("old", runs_dir=tmp_path).config.weight_decay == 0.01


def test_a_decay_that_somebody_wrote_into_a_run_is_refused(tmp_path):
    run = gymlab.train(
        "CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", max_env_steps=512, eval_freq_epochs=1, **TINY
    )
    written = json.loads((run.dir / "config.start.json").read_text()) | {"weight_decay": 0.1}
    (run.dir / "config.start.json").write_text(json.dumps(written))
    with pytest.raises(
        CheckpointError, match=r"weight_decay: the checkpoint was trained with 0, and the run's config says 0\.1"
    ):
        gymlab.resume("one", runs_dir=tmp_path, max_env_steps=1024)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(CheckpointError, match="no run"):
        gymlab.resume(runs_dir=tmp_path)


def test_a_checkpoint_of_another_network_is_refused_and_nothing_is_cut(tmp_path, monkeypatch):
    wishes = {**TINY, "max_env_steps": 1024, "keep_checkpoints": 9, "eval_freq_epochs": 1}
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", **wishes)
    files = {path: path.read_bytes() for path in run.dir.rglob("*") if path.is_file() and path.name != "run.lock"}
    assert len(list((run.dir / "checkpoints").glob("epoch=*"))) > 2
    real = gymlab.engine.train.prepare

    def another(config, **options):
        session = real(config, **options)
        session.workflow.modules[next(iter(session.workflow.modules))] = torch.nn.Linear(3, 2)
        return session

    monkeypatch.setattr(gymlab.engine.train, "prepare", another)
    with pytest.raises(CheckpointError, match="does not fit this agent"):
        gymlab.resume("one", runs_dir=tmp_path, epoch=1, max_env_steps=2048)
    for path, content in files.items():
        assert path.read_bytes() == content, path
