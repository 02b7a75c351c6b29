"""Composed experiments, through Hydra."""

from pathlib import Path

import pytest
from config_helpers import load_experiment

from gymlab.config import bind_dimensions, composed_experiments
from gymlab.config.schema import Schedule
from gymlab.config.targets import COMPONENTS
from gymlab.errors import ConfigError


@pytest.fixture
def groups(conf, write, monkeypatch):
    """A user's tree with the groups of a world-model experiment."""
    monkeypatch.setattr(
        COMPONENTS, "_entries", {**COMPONENTS._entries, "conv_vae": dict, "actor": dict, "replay": dict}
    )
    write(
        "experiment/carracing.yaml",
        """
defaults:
  - /workflow: tiny
  - /components/representation_learner@components.encoder: conv_vae
  - /controller@controllers.actor: tiny_actor
  - /buffer@buffers.replay: replay
  - /environment: cartpole
  - _self_
seed: 7
_dims: {observation: 4, action: 2, latent: "${add:${_dims.observation},10}"}
params: {lr: 1e-4}
optimizers:
  world_model: {_target_: torch.optim.Adam, _partial_: true, lr: "${params.lr}"}
training:
  total_timesteps: 1e4
  resume_path: runs/old
  phases:
    - {name: warm, type: online, workflow_hooks: collect, steps: 1e3, buffer: replay}
    - {name: rest, type: online}
""",
    )
    write("workflow/tiny.yaml", "name: ppo\nn_steps: 16\nbatch_size: 16\ngamma: 0.9\n")
    write("workflow/wide.yaml", "name: ppo\nn_steps: 64\nbatch_size: 32\n")
    write("components/representation_learner/conv_vae.yaml", "_target_: conv_vae\nlatent: ${_dims.latent}\n")
    write("controller/tiny_actor.yaml", "_target_: actor\ninputs: ${mul:${_dims.latent},2}\n")
    write("buffer/replay.yaml", "_target_: replay\ncapacity: 1e5\n")
    return conf


def test_a_composed_experiment(groups):
    loaded = load_experiment(None, "experiment=carracing", "experiment.seed=123", "n_envs=4", config_dir=groups)
    config = loaded.config
    assert (config.algo_id, config.env_id, config.variant, config.seed) == ("ppo", "CartPole-v1", "carracing", 123)
    assert (config.n_steps, config.batch_size, config.gamma, config.n_envs) == (16, 16, 0.9, 4)
    assert config.components == {"encoder": {"_target_": "conv_vae", "latent": 14}}
    assert config.controllers == {"actor": {"_target_": "actor", "inputs": 28}}
    assert config.buffers["replay"] == {"_target_": "replay", "capacity": 1e5}
    assert config.optimizers == {"world_model": {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 1e-4}}
    assert config.dims == {"observation": 4, "action": 2, "latent": 14}
    assert (config.max_env_steps, config.training.resume_path) == (10_000, "runs/old")
    assert [phase.name for phase in config.training.phases] == ["warm", "rest"]
    assert config.training.phases[0].duration_steps == 1000
    assert config.solved_threshold == 475


@pytest.mark.parametrize("spelling", ["experiment=carracing", "+experiment=carracing"])
def test_the_experiment_may_stand_first(groups, spelling):
    assert load_experiment(spelling, config_dir=groups).config.seed == 7


def test_overrides_reach_references_and_groups(groups):
    config = load_experiment(
        "experiment=carracing",
        "params.lr=5e-4",
        "_dims.observation=6",
        "workflow.gamma=0.5",
        "training.total_timesteps=2000",
        "components.encoder.depth=3",
        "training.phases.0.steps=500",
        config_dir=groups,
    ).config
    assert config.optimizers["world_model"]["lr"] == 5e-4
    assert config.components["encoder"] == {"_target_": "conv_vae", "latent": 16, "depth": 3}
    assert (config.gamma, config.max_env_steps) == (0.5, 2000)
    assert config.training.phases[0].duration_steps == 500


def test_a_group_chosen_on_the_command_line(groups):
    config = load_experiment("experiment=carracing", "workflow=wide", config_dir=groups).config
    assert (config.n_steps, config.batch_size, config.gamma) == (64, 32, 0.99)


def test_groups_alone_make_an_experiment(groups, write):
    write("env/atari.yaml", "train: {id: ALE/Pong-v5, frame_skip: 2}\n")
    write("params/atari.yaml", "lr: 0.3\n")
    config = load_experiment(
        None,
        "env=atari",
        "params=atari",
        "workflow=tiny",
        "env.train.id=ALE/Breakout-v5",
        "policy_lr=${params.lr}",
        config_dir=groups,
    ).config
    assert (config.env_id, config.frame_skip, config.algo_id, config.policy_lr) == ("ALE/Breakout-v5", 2, "ppo", 0.3)


def test_groups_with_an_algorithm_from_the_command_line(groups, write):
    write("env/pole.yaml", "id: CartPole-v1\n")
    assert load_experiment(None, "env=pole", algo="reinforce", config_dir=groups).config.algo_id == "reinforce"


def test_a_variant_with_defaults(groups, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
n_envs: 2
dreamer:
  defaults:
    - /workflow: wide
    - /components/representation_learner@components.encoder: conv_vae
  algo_id: ppo
  batch_size: 16
  policy_lr: lin_1e-3
  max_env_steps: 1e3
  _dims: {observation: 4, latent: 9}
""",
    )
    config = load_experiment("CartPole-v1:dreamer", config_dir=groups).config
    assert (config.n_steps, config.batch_size, config.n_envs, config.seed) == (64, 16, 2, 42)
    assert config.components == {"encoder": {"_target_": "conv_vae", "latent": 9}}
    assert config.policy_lr == Schedule(start=1e-3)


def test_errors_of_a_variant_with_defaults_know_the_line(groups, write):
    write(
        "environments/CartPole-v1.yaml",
        "env_id: CartPole-v1\nppo:\n  defaults: [{/workflow: wide}]\n  gama: 1\n",
    )
    with pytest.raises(ConfigError, match=r"CartPole-v1.yaml:4, variant ppo: unknown key `gama`"):
        load_experiment("CartPole-v1:ppo", config_dir=groups)


def test_a_variant_may_be_given_another_group(groups):
    config = load_experiment("CartPole-v1:ppo", "workflow=ppo").config
    assert [phase.name for phase in config.training.phases] == ["ppo"]
    assert config.n_steps == 32


def test_dimensions_that_the_environment_knows(groups, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
ppo:
  _dims: {latent: "${add:${_dims.observation},10}"}
  components: {encoder: {_target_: conv_vae, inputs: "${_dims.observation}", latent: "${_dims.latent}"}}
""",
    )
    config = load_experiment("CartPole-v1:ppo", config_dir=groups).config
    bound = bind_dimensions(config, observation=4, action=2)
    assert bound.components == {"encoder": {"_target_": "conv_vae", "inputs": 4, "latent": 14}}
    assert bound.dims == {"latent": 14, "observation": 4, "action": 2}
    plain = load_experiment("CartPole-v1:ppo").config
    assert bind_dimensions(plain, observation=4) is plain


def test_a_written_dimension_must_be_the_environments(groups):
    config = load_experiment("experiment=carracing", config_dir=groups).config
    with pytest.raises(ConfigError, match=r"_dims.observation is 4 in the config, but CartPole-v1 has 5"):
        bind_dimensions(config, observation=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("experiment=carracin",), "there is no experiment/carracin.yaml. Did you mean 'carracing'"),
        (("experiment=carracing", "workflow=tini"), "there is no workflow/tini.yaml. Did you mean 'tiny'"),
        (("CartPole-v1:ppo", "experiment=carracing"), "an experiment is one or the other"),
        (("experiment=carracing", "experiment.sed=1"), "unknown key `sed`. Did you mean 'seed'"),
    ],
)
def test_errors(groups, arguments, words):
    with pytest.raises(ConfigError, match=words):
        load_experiment(*arguments, config_dir=groups)


def test_a_group_file_that_is_missing(groups, write):
    write("experiment/broken.yaml", "defaults: [/workflow: nothing]\n")
    with pytest.raises(ConfigError, match=r"experiment broken: cannot be composed.*workflow/nothing"):
        load_experiment("experiment=broken", config_dir=groups)


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "torch.nn.parameter.torch.os.system"])
def test_targets_in_groups_are_checked_too(groups, write, target):
    write(
        "components/representation_learner/conv_vae.yaml", f"layers: [{{inner: {{_target_: {target}, command: ls}}}}]\n"
    )
    with pytest.raises(ConfigError) as error:
        load_experiment("experiment=carracing", config_dir=groups)
    assert f"components.encoder.layers[0].inner._target_ names '{target}', which is refused" in str(error.value)


def test_secrets_are_not_read(groups, write, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    write("workflow/tiny.yaml", "name: ppo\ndescription: ${oc.env:SECRET}\n")
    with pytest.raises(ConfigError, match=r"oc.env.*refused"):
        load_experiment("experiment=carracing", config_dir=groups)
    write("experiment/evil.yaml", "defaults: ['/workflow: ${oc.env:SECRET}']\n")
    with pytest.raises(ConfigError, match="defaults list holds the reference"):
        load_experiment("experiment=carracing", config_dir=groups)


EVIL = "{callbacks: {evil: {_target_: os.mkdir, path: ran}}}"


@pytest.mark.parametrize(
    ("name", "text", "experiment"),
    [
        ("workflow/tiny.yaml", f"# @package _global_\nhydra: {EVIL}\nalgo_id: ppo\n", "experiment=carracing"),
        ("workflow/tiny.yaml", f"# @package hydra\n{EVIL}\n", "experiment=carracing"),
        ("workflow/tiny.yaml", "defaults: [/workflow@hydra.callbacks: wide]\nname: ppo\n", "experiment=carracing"),
        ("workflow/tiny.yaml", "defaults: [/workflow: ../../secret]\nname: ppo\n", "experiment=carracing"),
        ("environments/Evil.yaml", f"env_id: CartPole-v1\nppo: {{defaults: [], hydra: {EVIL}}}\n", "Evil:ppo"),
    ],
)
def test_an_experiment_does_not_set_up_hydra(groups, write, empty_directory, name, text, experiment):
    write(name, text)
    with pytest.raises(ConfigError):
        load_experiment(experiment, config_dir=groups)
    assert not (empty_directory / "ran").exists()


def test_sources_name_the_files(groups):
    loaded = load_experiment("experiment=carracing", "workflow=wide", config_dir=groups)
    names = ["/".join(Path(path).parts[-2:]) for path in loaded.sources]
    assert {"experiment/carracing.yaml", "workflow/wide.yaml", "controller/tiny_actor.yaml"} <= set(names)
    # The default of the group was replaced: nothing of it is in the config.
    assert "workflow/tiny.yaml" not in names


def test_limits_hold_for_group_files(groups, write):
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)
    )
    write("workflow/tiny.yaml", bomb)
    with pytest.raises(ConfigError, match=r"tiny.yaml.*expand to more than"):
        load_experiment("experiment=carracing", config_dir=groups)


def test_the_shipped_experiment_is_the_shipped_variant():
    composed = load_experiment("experiment=cartpole_ppo").config
    plain = load_experiment("CartPole-v1:ppo").config
    for field in ("n_envs", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "policy_lr", "clip_range"):
        assert getattr(composed, field) == getattr(plain, field)
    assert composed.max_env_steps == plain.max_env_steps == 100_000
    assert composed.training.phases[0].buffer == "rollout"
    assert "cartpole_ppo" in composed_experiments()


@pytest.mark.parametrize(
    ("experiment", "override", "field", "value"),
    [
        ("experiment=cartpole_ppo", "environment.num_envs=16", "n_envs", 16),
        ("experiment=cartpole_ppo", "workflow.algo_id=reinforce", "algo_id", "reinforce"),
        ("CartPole-v1:ppo", "env=Pendulum-v1", "env_id", "Pendulum-v1"),
        ("CartPole-v1:ppo", "env.train.id=Pendulum-v1", "env_id", "Pendulum-v1"),
        ("CartPole-v1:ppo", "environment={name: Pendulum-v1, n_envs: 16}", "env_id", "Pendulum-v1"),
        (
            "CartPole-v1:ppo",
            "environment.env_kwargs.sutton_barto_reward=true",
            "env_kwargs",
            {"sutton_barto_reward": True},
        ),
        ("CartPole-v1:ppo", "workflow.gamma=0.5", "gamma", 0.5),
    ],
)
def test_what_is_typed_below_a_group_counts(experiment, override, field, value):
    assert getattr(load_experiment(experiment, override).config, field) == value


def test_an_unknown_key_below_a_group_is_refused():
    with pytest.raises(ConfigError, match=r"unknown key `num_env`. Did you mean 'n(um)?_envs'"):
        load_experiment("CartPole-v1:ppo", "environment.num_env=3")


def test_a_reference_to_a_group_sees_what_is_typed_below_it(groups, write):
    text = "algo_id: ppo\nenvironment: {id: CartPole-v1, num_envs: 2}\nseed: ${environment.num_envs}\n"
    write("experiment/plain.yaml", text)
    config = load_experiment("experiment=plain", "environment.num_envs=7", config_dir=groups).config
    assert (config.n_envs, config.seed) == (7, 7)


def test_a_group_chosen_beyond_an_experiment_lies_on_top_of_it(groups, write):
    write("environment/swing.yaml", "id: Pendulum-v1\nnum_envs: 16\nseed: 4\n")
    config = load_experiment("CartPole-v1:ppo", "environment=swing", "seed=9", config_dir=groups).config
    assert (config.env_id, config.n_envs, config.seed) == ("Pendulum-v1", 16, 9)


@pytest.mark.parametrize("text", ["controller=cem_planner", "buffer=disk_buffer", "controller=no_such_thing"])
def test_a_choice_from_a_group_that_does_not_exist_is_refused(text):
    group = text.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"command line.*`{text}`: there is no config group {group}/"):
        load_experiment("CartPole-v1:ppo", text)
