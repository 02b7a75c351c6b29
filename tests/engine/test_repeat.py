"""A run is trained anew from what it left behind, and the same comes out, bit for bit."""

import json
import os
import re
import signal

import gymnasium as gym
import numpy as np
import pytest
import torch

import gymlab
from gymlab.cli.main import main
from gymlab.components.observation import ObservationEncoder
from gymlab.config import derive
from gymlab.engine import changes
from gymlab.engine import train as training
from gymlab.engine.callbacks import live_changes
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError, ConfigError, GymlabError


@pytest.fixture(autouse=True)
def commit(monkeypatch):
    """Of a checkout without changes: one with changes does not say what trained, and a repetition says so."""
    monkeypatch.setattr("gymlab.engine.run.source_commit", lambda: "0123456789ab")


SHORT = {"quiet": True, "video": False, "eval_episodes": 2, "eval_max_episode_steps": 10, "torch_threads": 1, "seed": 3}
PPO = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 2, "max_env_steps": 512, "eval_freq_epochs": 2}
SEQUENCES = {"n_envs": 2, "max_env_steps": 160, "epoch_env_steps": 32, "batch_size": 4}
TRAININGS = {
    "ppo": ("CartPole-v1", PPO),
    "reinforce": ("CartPole-v1", {"n_envs": 2, "n_steps": 32, "batch_size": 32, "max_env_steps": 512}),
    "q_learning": ("FrozenLake-v1", {"n_envs": 2, "max_env_steps": 512}),
    "dreamer": (
        "CartPole-v1",
        {**SEQUENCES, "deter": 16, "hidden": 8, "units": 8, "stoch": 4, "classes": 4, "blocks": 2, "horizon": 3, "batch_length": 8}
        | {"train_ratio": 8, "prefill_steps": 64, "replay_size": 200},
    ),
    "tdmpc2": (
        "Pendulum-v1",
        {**SEQUENCES, "seed_steps": 64, "latent": 16, "hidden": 16, "encoder_hidden": 16, "plan_samples": 12, "replay_size": 200}
        | {"plan_policy_samples": 4, "plan_elites": 4, "plan_iterations": 2},
    ),
    "world_models": (
        "CartPole-v1",
        {"hidden": 8, "mixtures": 2, "batch_size": 4, "batch_length": 8, "replay_size": 2000, "collect_env_steps": 64}
        | {"model_updates": 4, "population": 4, "rollouts": 2, "generations": 1, "n_envs": 4, "n_steps": 16, "elite_rollouts": 16}
        | {"predict_reward": True, "predict_end": True, "max_env_steps": 1000},
    ),
    "delta_iris": (
        "Repeated-v0",
        {"multiples": (1,), "halves": (1,), "fold": 4, "codebook_size": 8, "codebook_dim": 4, "token_features": 4}
        | {"tokenizer_channels": 8, "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1, "width": 16}
        | {"layers": 1, "heads": 2, "blocks": 4, "frame_channels": 8, "frame_features": 4, "actor_channels": 8, "actor_features": 2}
        | {"lstm": 8, "burn_in": 1, "horizon": 3, "tokenizer_batch": 2, "tokenizer_length": 4, "model_batch": 2, "actor_batch": 3}
        | {"alpha": 1.0, "collect_env_steps": 20, "first_env_steps": 40, "collect_steps": 5, "tokenizer_updates": 2, "n_envs": 2}
        | {"model_updates": 2, "actor_updates": 2, "first_tokenizer_updates": 3, "first_model_updates": 2, "first_actor_updates": 2}
        | {"collect_epochs": None, "max_epochs": 2, "replay_size": 1000, "max_env_steps": 10_000},
    ),
}  # fmt: skip
"""A tiny training of each algorithm; that of brax_ppo is repeated where it is tested."""


class Pictures(gym.Env):
    """A bright tile that the action moves; the fifth step is the end."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(4)), 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        self.place = (self.place + int(action) - 1) % 4
        return self._look(), float(self.place == 3), self.steps == 5, False, {}

    def _look(self):
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[4:8, 4 * self.place : 4 * self.place + 4] = 200
        return picture


@pytest.fixture
def pictures(monkeypatch):
    """An environment that only this process knows, registered by its class."""
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)
    gym.register("Repeated-v0", entry_point=Pictures)


@pytest.fixture
def ppo(tmp_path):
    """`ppo("one", **fields)`: a training of a second."""

    def train(run_id="one", experiment="CartPole-v1:ppo", **fields):
        settings = {**SHORT, **PPO, "early_stop_on_eval_threshold": False, **fields}
        return gymlab.train(experiment, runs_dir=tmp_path, run_id=run_id, **settings)

    return train


def assert_same(run, other):
    """By hand, not by what is tested."""
    columns = [{name: row for name, row in one.metrics.items() if not name.startswith("sys/")} for one in (run, other)]
    assert columns[0] == columns[1]
    assert any(columns[0].values())
    first, second = (one.checkpoints.find().read_model() for one in (run, other))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("algo", TRAININGS)
def test_each_algorithm_repeats_from_the_command_line_and_from_python(tmp_path, pictures, capfd, algo):
    env_id, settings = TRAININGS[algo]
    run = gymlab.train(env_id, algo=algo, runs_dir=tmp_path, run_id="one", **{**SHORT, **settings})
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.equal, repetition.difference
    assert_same(run, repetition.run)
    capfd.readouterr()
    assert main(["repeat", "one", "--runs-dir", str(tmp_path), "-q", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["repeats"], told["run"], told["equal"], told["difference"]) == ("one", "one-repeat-2", True, None)
    assert_same(run, Run(tmp_path / "one-repeat-2"))


def test_cores_and_fields_from_python_are_those_of_the_run(tmp_path, ppo, monkeypatch):
    """The config that was resolved is trained, not resolved again: not with the cores of now, and not from a file that has changed."""
    monkeypatch.setattr(derive, "cores", lambda: 4)
    run = ppo(n_envs="auto", policy_lr=1e-3)
    assert run.config_data["n_envs"] == 4
    monkeypatch.setattr(derive, "cores", lambda: 2)
    repetition = gymlab.repeat(run, runs_dir=tmp_path)
    assert repetition.run.config_data["n_envs"] == 4
    assert_same(run, repetition.run)


class Once(Callback):
    """Does something at the start of an epoch."""

    def __init__(self, epoch, do):
        self.epoch, self.do = epoch, do

    def on_epoch_start(self, loop):
        if loop.counters.epoch == self.epoch:
            self.do(loop)


@pytest.fixture
def at_epoch(monkeypatch):
    """The next trainings do something once, and look for changes in every epoch."""
    monkeypatch.setattr(live_changes, "LOOK_SECONDS", 0.0)
    original = training._callbacks

    def use(epoch, do):
        monkeypatch.setattr(training, "_callbacks", lambda *given: [*original(*given), Once(epoch, do)])

    yield use
    monkeypatch.undo()


def test_changes_by_hand_are_made_again_where_they_took_effect(tmp_path, ppo, at_epoch, monkeypatch):
    at_epoch(2, lambda loop: gymlab.set_hyperparameters("one", runs_dir=tmp_path, policy_lr=0.01, ent_coef="lin_0.1"))
    run = ppo()
    monkeypatch.undo()
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert run.metrics["train/policy_lr"][3:] == [0.01] * 5
    assert_same(run, repetition.run)
    assert repetition.equal
    assert "gymlab set, again" in (repetition.run.dir / "report.md").read_text()


def test_a_run_that_was_resumed_with_other_settings(tmp_path, ppo):
    """A schedule over a budget that grew, a hyperparameter, and a checkpoint in the middle: what came after that was given up."""
    run = ppo(policy_lr="lin_0.001", keep_checkpoints=9)
    gymlab.resume("one", epoch=4, runs_dir=tmp_path, max_env_steps=1024, ent_coef=0.1, eval_freq_epochs=3)
    gymlab.resume("one", runs_dir=tmp_path, max_env_steps=1280)
    rates = run.metrics["train/policy_lr"]
    assert len(rates) == 20
    assert rates[4] > rates[3], "the schedule of another budget"
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert_same(run, repetition.run)
    assert repetition.equal
    twice = gymlab.repeat(repetition.run, runs_dir=tmp_path, run_id="twice")
    assert_same(run, twice.run)


def test_a_repetition_in_parts_keeps_its_wall_time_and_whom_it_repeats(tmp_path, ppo):
    ppo(max_env_steps=256)
    gymlab.resume("one", runs_dir=tmp_path, max_env_steps=512, gamma=0.9)
    record = gymlab.repeat("one", runs_dir=tmp_path).run.record
    assert len(record["resumed"]) == 1
    assert record["wall_seconds"] > record["seconds"] > 0
    assert record["notices"][0] == "Repeats one."


def test_what_was_given_up_twice_is_not_trained(tmp_path, ppo):
    run = ppo(keep_checkpoints=99, eval_freq_epochs=1)
    gymlab.resume("one", epoch=6, runs_dir=tmp_path, max_env_steps=1024)
    gymlab.resume("one", epoch=3, runs_dir=tmp_path, max_env_steps=640)
    assert len(run.record["resumed"]) == 2
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert [sitting["from"] for sitting in repetition.run.record["resumed"]] == ["epoch=0003.ckpt"]
    assert_same(run, repetition.run)


@pytest.fixture
def stopped(ppo, monkeypatch):
    """A run that a signal has stopped in the middle of a rollout, whose rows have moved the running mean already."""
    seen, encode = [], ObservationEncoder.encode

    def terminated(self, *arguments, update, **keywords):
        seen.append(update)
        if seen.count(True) == 50:
            os.kill(os.getpid(), signal.SIGTERM)
        return encode(self, *arguments, update=update, **keywords)

    monkeypatch.setattr(ObservationEncoder, "encode", terminated)
    run = ppo(normalize_obs="rolling")
    monkeypatch.undo()
    assert run.status == "stopped"
    return run


def test_a_stopped_run_repeats_to_where_it_was_stopped(tmp_path, stopped):
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert (repetition.run.status, repetition.run.state.reason) == ("stopped", "stopped by gymlab repeat")
    assert repetition.run.record["counters"] == stopped.record["counters"]
    assert_same(stopped, repetition.run)
    report = (repetition.run.dir / "report.md").read_text()
    assert "one stopped by SIGTERM; its repetition ends there, at 64 env steps (4 updates)." in report


def test_a_stopped_run_that_went_on_repeats_to_its_end(tmp_path, stopped):
    """In the same parts: an environment that cannot go on in the middle of an episode begins a fresh one at the same step."""
    gymlab.resume("one", runs_dir=tmp_path)
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.run.status == "finished"
    assert_same(stopped, repetition.run)


def test_a_crashed_run_repeats_to_its_last_checkpoint(tmp_path, ppo, at_epoch, monkeypatch):
    def fail(loop):
        raise RuntimeError("the disk is on fire")

    at_epoch(5, fail)
    with pytest.raises(RuntimeError):
        ppo()
    monkeypatch.undo()
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.equal, repetition.difference
    assert repetition.run.record["counters"]["epoch"] == 4
    assert "ends at its last checkpoint, at 256 env steps" in (repetition.run.dir / "report.md").read_text()


def test_a_run_without_a_checkpoint_has_nothing_to_repeat(tmp_path, ppo, at_epoch, monkeypatch):
    at_epoch(0, lambda loop: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ppo()
    monkeypatch.undo()
    with pytest.raises(GymlabError, match=r"Run one is crashed \(ZeroDivisionError.*nothing to repeat"):
        gymlab.repeat("one", runs_dir=tmp_path)


def test_a_running_run_is_not_repeated(tmp_path, ppo, at_epoch):
    said = []

    def repeat(loop):
        with pytest.raises(GymlabError, match="still training") as error:
            gymlab.repeat("one", runs_dir=tmp_path)
        said.append(error)

    at_epoch(3, repeat)
    ppo()
    assert said


def test_a_difference_is_found_and_named(tmp_path, ppo, monkeypatch, capfd):
    run = ppo()
    path = run.dir / "metrics.csv"
    lines = path.read_text().splitlines()
    column = lines[0].split(",").index("train/roll/ep_rew/mean")
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:column], "1.5", *cells[column + 1 :]])
    path.write_text("\n".join(lines) + "\n")
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert not repetition.equal
    assert re.fullmatch(
        r"train/roll/ep_rew/mean at epoch 3, 192 env steps: 1\.5 there, [\d.]+ here", repetition.difference
    )
    capfd.readouterr()
    assert main(["repeat", "one", "--runs-dir", str(tmp_path), "-q"]) == 1
    shown = capfd.readouterr().out
    assert "one-repeat-2 differs from one: train/roll/ep_rew/mean at epoch 3" in shown
    assert "Versions, processor, cores and kernels are as they were." in shown


def test_another_model_is_found(tmp_path, ppo, monkeypatch):
    ppo()
    read = training.Checkpoint.read_model

    def altered(self):
        tensors = read(self)
        if self.path.parents[1].name == "one":
            name = next(iter(tensors))
            tensors[name] = torch.nextafter(tensors[name], torch.full_like(tensors[name], 9.0))
        return tensors

    monkeypatch.setattr(training.Checkpoint, "read_model", altered)
    assert re.match("the model: .* is not the same", gymlab.repeat("one", runs_dir=tmp_path).difference)


def test_what_is_not_as_it_was_is_said_before_and_after(tmp_path, ppo):
    run = ppo()
    record = run.record
    machine = record["machine"] | {"processor": "Abacus", "kernels": "wooden"}
    versions = record["versions"] | {"torch": "0.4.1"}
    run.update_record(machine=machine, versions=versions)
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.equal
    told = " ".join(repetition.circumstances)
    assert "torch: 0.4.1 -> " in told
    assert "processor: Abacus -> " in told
    assert "kernels: wooden -> " in told
    assert "The numbers may differ from those of one: torch: 0.4.1 -> " in (repetition.run.dir / "run.log").read_text()


def test_threads_are_those_of_the_run(tmp_path, ppo):
    run = ppo(torch_threads=None)
    assert run.record["machine"]["threads"] == 1
    run.update_record(machine=run.record["machine"] | {"threads": 2})
    try:
        assert gymlab.repeat("one", runs_dir=tmp_path).run.record["machine"]["threads"] == 2
    finally:
        torch.set_num_threads(1)


def test_parameters_to_begin_with_are_those_of_then(tmp_path, ppo):
    """`@last` was another run then; one that was trained on since has other parameters, and one that is gone has none."""
    ppo("zero", seed=1)
    run = ppo(init_from_run="@last/@best")
    assert re.fullmatch(r"zero/epoch=\d+", run.config_data["init_from_run"])
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.equal
    assert not repetition.circumstances
    assert_same(run, repetition.run)
    run.update_record(first_model="0" * 64)
    (told,) = gymlab.repeat("one", runs_dir=tmp_path).circumstances
    assert re.fullmatch(r"the parameters in zero/epoch=\d+ that it began with are others now", told)
    (tmp_path / "zero").rename(tmp_path / "gone")
    with pytest.raises(
        CheckpointError, match=r"one began with the parameters of zero/epoch=.* cannot be read any more"
    ):
        gymlab.repeat("one", runs_dir=tmp_path)


def test_a_repetition_that_is_stopped_says_how_far_it_came(tmp_path, ppo, at_epoch):
    ppo()
    at_epoch(3, lambda loop: loop.stop_signal.request("SIGINT"))
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert not repetition.equal
    assert re.match(
        r"it was stopped by SIGINT at \d+ env steps, before its end; until then 3 rows are", repetition.difference
    )


def test_halves_by_turns_are_those_of_the_run(tmp_path, ppo, monkeypatch):
    """Whether they pay is measured when a run begins, and another batch size rounds in another way."""
    from gymlab.buffers import collector

    settings = {"n_envs": 4, "env_workers": 2, "vectorization_mode": "async", "max_env_steps": 256}
    monkeypatch.setattr(collector, "halves_pay", lambda *times: True)
    run = ppo(experiment="Acrobot-v1:ppo", max_episode_steps=20, **settings)
    assert run.record["by_turns"] is True
    monkeypatch.setattr(collector, "halves_pay", lambda *times: False)
    repetition = gymlab.repeat("one", runs_dir=tmp_path)
    assert repetition.run.record["by_turns"] is True
    assert_same(run, repetition.run)


def test_an_environment_that_is_registered_nowhere_says_what_to_do(tmp_path, ppo, pictures, monkeypatch):
    convolutions = {"channels": [4], "kernel_sizes": [4], "strides": [4], "hidden_dims": [8]}
    settings = {**SHORT, **PPO, "policy": "cnn", "policy_kwargs": convolutions}
    gymlab.train("Repeated-v0", algo="ppo", runs_dir=tmp_path, run_id="one", **settings)
    monkeypatch.undo()
    with pytest.raises(
        GymlabError,
        match=r"(?s)Repeated-v0.*--plugin.*gymlab\.repeat",
    ):
        gymlab.repeat("one", runs_dir=tmp_path)
    assert not (tmp_path / "one-repeat").exists()


def test_a_file_that_a_run_names_has_to_be_named_again(tmp_path, ppo):
    """A run's directory may be somebody else's; see SECURITY.md."""
    run = ppo()
    written = json.loads((run.dir / "config.start.json").read_text())
    (run.dir / "config.start.json").write_text(json.dumps(written | {"env_kwargs": {"file": "/etc/passwd"}}))
    with pytest.raises(ConfigError, match=r"env_kwargs.file is '/etc/passwd'.*--env-kwargs file=/etc/passwd"):
        gymlab.repeat("one", runs_dir=tmp_path)
    (run.dir / "config.start.json").write_text(json.dumps(written | {"env_id": "antigravity:Fly-v0"}))
    with pytest.raises(ConfigError, match="would import the module 'antigravity'"):
        gymlab.repeat("one", runs_dir=tmp_path)


@pytest.mark.parametrize(
    "resumed",
    [
        [{"time": 1.0, "from": "epoch=0004.ckpt", "at": {"env_steps": -1, "updates": 0, "epoch": 0}}],
        [{"time": 1.0, "from": "epoch=0004.ckpt", "at": {"env_steps": 256, "updates": 0, "epoch": 4, "looks": "x"}}],
        [{"time": 1.0, "from": "epoch=0004.ckpt", "at": 7, "changed": [1]}],
    ],
)
def test_a_damaged_record_is_no_history(tmp_path, ppo, resumed):
    run = ppo()
    run.update_record(resumed=resumed)
    assert gymlab.repeat("one", runs_dir=tmp_path).equal


def test_settings_that_a_record_says_were_others_are_checked_like_a_config(tmp_path, ppo):
    run = ppo()
    place = {"env_steps": 256, "updates": 0, "epoch": 4}
    changed = {"max_env_steps": "many", "env_id": "antigravity:Fly-v0"}
    run.update_record(resumed=[{"time": 1.0, "from": "epoch=0004.ckpt", "at": place, "changed": changed}])
    with pytest.raises(ConfigError, match="max_env_steps"):
        gymlab.repeat("one", runs_dir=tmp_path)


def test_a_run_that_an_earlier_release_resumed_says_that_it_is_in_doubt(tmp_path, ppo):
    run = ppo()
    run.update_record(resumed=[{"time": 1.0, "from": "epoch=0004.ckpt"}])
    (told,) = gymlab.repeat("one", runs_dir=tmp_path).circumstances
    assert told == "it was resumed from epoch=0004.ckpt by an earlier release, which did not note how"
    assert changes.LOG not in os.listdir(tmp_path / "one-repeat")
