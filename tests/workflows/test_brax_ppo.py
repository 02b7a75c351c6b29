import csv
import sys
import warnings
from functools import partial

import numpy as np
import pytest

from gymlab.api import load, repeat, resolve, resume, train
from gymlab.cli.preview import preview
from gymlab.components.brax_training import BraxTraining
from gymlab.errors import ConfigError, NotInstalled
from gymlab.workflows.brax_ppo import BraxPPOConfig

SETTINGS = {
    "n_envs": 32,
    "unroll_length": 5,
    "batch_size": 32,
    "num_minibatches": 4,
    "num_updates_per_batch": 8,
    "policy_lr": 3e-3,
    "policy_hidden_dims": [16],
    "value_hidden_dims": [16],
    "normalize_obs": "rolling",
    "max_episode_steps": 20,
    "eval_episodes": 10,
    "early_stop_on_eval_threshold": False,
    "video": False,
    "quiet": True,
    "seed": 3,
}
TRAINING_STEP = 32 * 4 * 5


def fields(**changes):
    return BraxPPOConfig.model_validate({"env_id": "brax/walk", "algo_id": "brax_ppo", **SETTINGS, **changes})


def test_a_budget_is_whole_training_steps():
    assert fields(max_env_steps=2 * TRAINING_STEP + 100).max_env_steps == 2 * TRAINING_STEP
    assert fields(max_env_steps=2 * TRAINING_STEP).max_env_steps == 2 * TRAINING_STEP
    assert (fields().training_step, fields().n_steps, fields().gradient_steps) == (640, 20, 32)
    with pytest.raises(ValueError, match="batch_size 32 x num_minibatches 4 x unroll_length 5 = 640 env steps"):
        fields(max_env_steps=639)


def test_a_budget_below_a_training_step_is_refused_by_name(walk):
    """Whatever the number of environments, and not by way of a smaller one that does not share out the pieces."""
    with pytest.raises(ConfigError, match="max_env_steps 7 is less than one of Brax's training steps"):
        resolve("brax/walk", algo="brax_ppo", **SETTINGS, max_env_steps=7)
    awkward = resolve("brax/walk", algo="brax_ppo", **SETTINGS, max_env_steps=1000)
    assert awkward.config.max_env_steps == TRAINING_STEP
    assert awkward.notices[0].startswith("max_env_steps is 640: 1,000 is no multiple of what is stepped at once")


def test_pieces_are_shared_out_evenly():
    with pytest.raises(ValueError, match="= 128 pieces cannot be shared out evenly to n_envs 48"):
        fields(n_envs=48)


def test_brax_names_its_settings_otherwise():
    names = {"discounting": 0.9, "entropy_cost": 0.5, "num_envs": 16, "episode_length": 30, "action_repeat": 2}
    config = resolve("brax/inverted_pendulum:ppo", **names, normalize_observations=False).config
    assert (config.gamma, config.ent_coef, config.n_envs) == (0.9, 0.5, 16)
    assert (config.max_episode_steps, config.frame_skip, config.normalize_obs) == (30, 2, "off")


def test_its_optimizer_is_brax_s_own(walk):
    """Adam without decay: a weight_decay would be read by nobody, and is refused."""
    config = resolve("brax/walk", algo="brax_ppo", **SETTINGS, max_env_steps=640).config
    assert preview(config)["derived"]["optimizer"] == "Adam of optax, eps 1e-08, no weight decay"
    with pytest.raises(ConfigError, match=r"`weight_decay` is a field of .*; brax_ppo has none"):
        resolve("brax/walk", algo="brax_ppo", **SETTINGS, weight_decay=0.1)


def test_without_brax_the_error_is_the_pip_line(monkeypatch, tmp_path):
    for module in ("brax", "brax.envs"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalled, match=r"pip install 'gymlab\[brax\]'"):
        train("brax/inverted_pendulum:ppo", runs_dir=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experiment": "CartPole-v1"}, "CartPole-v1 is none. Use ppo"),
        (
            {"normalize_reward": True},
            "normalize_reward has no effect with brax_ppo .it trains on Brax's environments as they are",
        ),
        ({"normalize_obs": "static"}, "static needs bounds"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message, tmp_path, request):
    if "experiment" not in changes:
        request.getfixturevalue("walk")
    experiment = changes.pop("experiment", "brax/walk")
    with pytest.raises(ConfigError, match=message):
        train(experiment, algo="brax_ppo", runs_dir=tmp_path, **{**SETTINGS, "max_env_steps": 640, **changes})


@pytest.fixture(scope="module")
def walk():
    pytest.importorskip("brax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import brax_walk

    return brax_walk.Walk()


def train_walk(runs_dir, run_id, steps):
    return train(
        "brax/walk",
        algo="brax_ppo",
        runs_dir=runs_dir,
        run_id=run_id,
        max_env_steps=steps * TRAINING_STEP,
        eval_freq_epochs=5,
        **SETTINGS,
    )


def rows(run):
    """Metrics but for those of the clock."""
    with (run.dir / "metrics.csv").open() as file:
        return [{name: value for name, value in row.items() if "sys/" not in name} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def run(walk, tmp_path_factory):
    return train_walk(tmp_path_factory.mktemp("runs"), "whole", 20)


def test_it_learns_and_counts(run):
    counters = run.record["counters"]
    assert (counters["env_steps"], counters["updates"], counters["epoch"]) == (20 * 640, 20 * 32, 20)
    # 32 environments for 20 x 20 steps, in episodes of at most 20.
    assert counters["episodes"] >= 32 * 20
    # Standing still gives 10 on average; the middle is reached in two steps.
    assert run.record["result"]["mean"] > 17
    logged = rows(run)
    assert float(logged[-1]["train/roll/ep_rew/mean"]) > float(logged[0]["train/roll/ep_rew/mean"]) + 3
    assert float(logged[-1]["train/roll/ep_len/mean"]) <= 20
    for name in ("total", "policy", "value", "entropy"):
        assert np.isfinite(float(logged[-1][f"train/loss/{name}"]))


def test_the_agent_of_a_run_acts(run):
    agent = load("whole", runs_dir=run.dir.parent)
    action = agent.act(np.array([1.0], dtype=np.float32))
    assert action.shape == (1,)
    assert -1 <= action[0] < -0.5
    batch = agent.act(np.array([[-1.0], [1.0]], dtype=np.float32), deterministic=False)
    assert batch.shape == (2, 1)
    assert agent.extras["value"].shape == agent.extras["log_prob"].shape == (2,)
    assert agent.evaluate(10, seed=1).returns.mean() > 17
    names = set(agent.checkpoint.read_model())
    assert {"brax.policy/params/hidden_0/kernel", "brax.normalizer/mean", "brax.normalizer/count/lo"} <= names


def test_a_resumed_run_goes_on_from_its_parameters_and_says_what_is_lost(run, walk, caplog):
    half = train_walk(run.dir.parent, "half", 10)
    # The same seed, the same run.
    assert rows(half) == rows(run)[:10]
    before = load("half", runs_dir=run.dir.parent).checkpoint.read_model()
    caplog.clear()
    again = resume("half", runs_dir=run.dir.parent, max_env_steps=12 * TRAINING_STEP)
    assert "Its optimizer and its environments begin anew" in caplog.text
    assert again.record["counters"]["env_steps"] == 12 * 640
    after = load("half", runs_dir=run.dir.parent).checkpoint.read_model()
    # 4 x 32 rows of 5 steps in each of 12 training steps have been seen by the statistics, those before the stop among them.
    assert int(after["brax.normalizer/count/lo"]) == 12 * 640
    kernel = "brax.policy/params/hidden_0/kernel"
    assert 0 < float((after[kernel] - before[kernel]).abs().max()) < 0.5


def test_a_stop_does_not_wait_and_loses_nothing(walk):
    training = BraxTraining(walk, **_arguments())
    assert training.advance(lambda: True) is None
    progress = training.advance(lambda: False)
    assert len(progress.parameters) == 3
    assert np.isfinite(progress.metrics["training/total_loss"])


def test_an_error_in_brax_is_raised_to_who_waits(walk):
    training = BraxTraining(walk, **{**_arguments(), "num_minibatches": 3})
    with pytest.raises(AssertionError):
        training.advance(lambda: False)


def _arguments():
    from brax.training.agents.ppo.networks import make_ppo_networks

    sizes = {"policy_hidden_layer_sizes": (4,), "value_hidden_layer_sizes": (4,)}
    return {
        "network_factory": partial(make_ppo_networks, **sizes),
        "num_timesteps": 10_000,
        "num_evals": 3,
        "num_envs": 4,
        "num_eval_envs": 1,
        "episode_length": 5,
        "unroll_length": 2,
        "batch_size": 2,
        "num_minibatches": 2,
        "num_updates_per_batch": 1,
    }


def test_a_run_repeats(run):
    repetition = repeat(run, runs_dir=run.dir.parent)
    assert repetition.equal, repetition.difference
    assert rows(repetition.run) == rows(run)
