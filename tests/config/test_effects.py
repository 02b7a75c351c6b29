"""What a setting does nothing for is refused by name, or told in a line where the user could not help it."""

import json

import pytest

import gymlab
from gymlab.config.dump import dump, from_dict
from gymlab.config.effects import NoEffect, declared, idle_places, idle_settings
from gymlab.config.schema import Config
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import find_workflow, workflow_names
from gymlab.errors import ConfigError

SCHEMAS = {name: find_workflow(name).Config for name in workflow_names()}


def resolve(experiment="CartPole-v1:ppo", **fields):
    return gymlab.resolve(experiment, **fields)


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_declared_names_settings_that_there_are(name):
    schema = SCHEMAS[name]
    for rule in declared(schema):
        assert {*rule.names, *rule.when} <= schema.model_fields.keys(), rule
        assert rule.why, rule


@pytest.mark.parametrize("name", SCHEMAS)
def test_defaults_are_never_idle(name):
    schema = SCHEMAS[name]
    kinds = {rule.on for rule in declared(schema) if rule.on}
    config = schema.model_validate(schema.fill_in({"env_id": "any", "algo_id": name}))
    assert not list(idle_settings(config))
    assert not list(idle_settings(config, kinds))


@pytest.mark.parametrize("name", SCHEMAS)
def test_precision_has_an_effect_where_the_workflow_says_that_it_honours_it(name):
    assert find_workflow(name).mixed_precision is (idle_places(SCHEMAS[name], "precision") is not None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replay_is_clip": 5.0}, r"replay_is_clip has no effect with replay_ratio: 0 \(no stored"),
        ({"vf_coef": 0, "clip_range_vf": 0.2}, r"clip_range_vf has no effect with vf_coef: 0.0 \(no value is learned"),
        ({"replay_buffer_size": 100}, "replay_buffer_size has no effect with replay_ratio: 0"),
        ({"normalize_returns": "batch"}, "normalize_returns has no effect with policy_targets: advantages"),
        ({"advantages_type": "baseline", "policy_targets": "returns"}, "advantages_type has no effect"),
        ({"gae_lambda": 0.5, "returns_type": "mc:rtg", "policy_targets": "returns"}, "gae_lambda has no effect"),
        ({"policy": "torch.nn.Linear", "hidden_dims": [8]}, "hidden_dims has no effect with policy: torch.nn.Linear"),
        ({"policy_kwargs": {"activation": "relu"}, "activation": "elu"}, "activation has no effect with policy_kwargs"),
        ({"policy": "mlp", "model_id": "cnn_nature"}, "policy: mlp has no effect with model_id: cnn_nature"),
        ({"env_workers": 2, "vectorization_mode": "sync"}, "env_workers has no effect with vectorization_mode: sync"),
        ({"env_step_timeout": 5.0, "vectorization_mode": "native"}, "env_step_timeout has no effect"),
        ({"init_parts": ["policy"]}, "init_parts has no effect with init_from_run: null"),
        ({"video_max_seconds": 3.0, "video": False}, "video_max_seconds has no effect"),
        (
            {"experiment": "FrozenLake-v1:q_learning", "precision": "bf16-mixed"},
            "precision has no effect with q_learning",
        ),
        (
            {"experiment": "FrozenLake-v1:q_learning", "double_buffer": True},
            "double_buffer has no effect with q_learning",
        ),
        (
            {"experiment": "CartPole-v1:world_models", "precision": "16-mixed"},
            "precision has no effect with world_models",
        ),
        (
            {"experiment": "CartPole-v1:reinforce_rtg", "value_lr": 0.5},
            "value_lr has no effect with policy_targets: returns",
        ),
        ({"experiment": "Pendulum-v1:tdmpc2", "end_coef": 2.0}, "end_coef has no effect with episodic: false"),
    ],
)
def test_idle_settings_are_refused_by_name(fields, message):
    with pytest.raises(ConfigError, match=message):
        resolve(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"replay_is_clip": 5.0, "replay_ratio": 1},
        {"normalize_returns": "batch", "policy_targets": "returns"},
        {"env_workers": 2, "vectorization_mode": "async"},
        {"double_buffer": False},
        {"replay_buffer_size": 16_384},
        {"experiment": "FrozenLake-v1:q_learning", "double_buffer": False},
    ],
)
def test_with_their_partner_or_as_they_are_anyway_they_are_taken(fields):
    assert resolve(**fields).notices == ()


@pytest.mark.parametrize(
    ("experiment", "fields", "message"),
    [
        ("Taxi-v4:ppo", {"normalize_obs": "rolling"}, "normalize_obs has no effect on discrete observations"),
        ("CartPole-v1:ppo_pixels", {"normalize_obs": "rolling"}, "normalize_obs has no effect on images"),
        ("CartPole-v1:ppo", {"render_mode": "human"}, "render_mode has no effect on environments that one array"),
        ("CartPole-v1:dreamer_v3", {"continuous_actor": "tanh_normal"}, "continuous_actor has no effect on discrete"),
    ],
)
def test_what_only_the_environments_show_is_refused_when_they_are_built(experiment, fields, message):
    config = resolve(experiment, **fields).config
    with pytest.raises(ConfigError, match=message):
        prepare(config)
    prepare(config, resumed=True).close()


def test_sizes_of_networks_that_there_are_not_are_told():
    """Variants for pictures and for vectors share a base, and what is of the other kind lies there."""
    session = prepare(resolve("CartPole-v1:dreamer_v3", cnn_depth=8).config)
    session.close()
    assert session.notices == [
        "cnn_depth has no effect on observations that are no images (there are no convolutions)."
    ]


def test_where_the_number_of_cores_decides_it_is_told():
    session = prepare(resolve(env_step_timeout=5.0).config)
    session.close()
    assert session.notices == [
        "env_step_timeout has no effect on environments that no worker process steps (there is nothing for it to work on)."
    ]


def test_a_file_is_refused_by_its_line_unless_the_command_line_made_it_idle(tmp_path):
    (tmp_path / "environments").mkdir()
    path = tmp_path / "environments" / "CartPole-v1.yaml"
    text = "_base: {env_id: CartPole-v1, max_env_steps: 6400, n_envs: 2, eval_freq_epochs: 9}\nppo:\n  n_steps: 64\n  replay_ratio: %s\n  replay_is_clip: 5.0\n"
    path.write_text(text % 0)
    with pytest.raises(ConfigError, match=r"CartPole-v1.yaml:5, variant ppo: replay_is_clip has no effect"):
        resolve(config_dir=tmp_path)
    path.write_text(text % 1)
    assert resolve(config_dir=tmp_path).notices == ()
    (notice,) = resolve(config_dir=tmp_path, replay_ratio=0).notices
    assert notice.startswith("CartPole-v1.yaml:5, variant ppo: replay_is_clip has no effect with replay_ratio: 0")


def test_files_for_another_algorithm_or_of_an_earlier_generation_are_told(tmp_path):
    (tmp_path / "environments").mkdir()
    path = tmp_path / "environments" / "Acrobot-v1.yaml"
    path.write_text(
        "_base: {env_id: Acrobot-v1, double_buffer: true, max_env_steps: 40960, n_envs: 2, eval_freq_epochs: 1}\nppo: {}\n"
    )
    (notice,) = resolve("Acrobot-v1", algo="q_learning", config_dir=tmp_path).notices
    assert "double_buffer has no effect with q_learning" in notice
    path.write_text(
        "_base: {env_id: Acrobot-v1}\nreinforce: {use_baseline: true, normalize_returns: batch, max_env_steps: 40960, n_envs: 2, eval_freq_epochs: 1}\n"
    )
    (notice,) = resolve("Acrobot-v1:reinforce", config_dir=tmp_path).notices
    assert "normalize_returns has no effect with policy_targets: advantages" in notice


def test_a_run_that_was_trained_so_opens(tmp_path):
    data = dump(resolve().config) | {"replay_is_clip": 5.0}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data))
    assert from_dict(data, SCHEMAS.__getitem__).replay_is_clip == 5.0
    loaded = resolve(str(path))
    assert loaded.config.replay_is_clip == 5.0
    assert any("replay_is_clip has no effect" in notice for notice in loaded.notices)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["max_env_steps=100", "max_timesteps=200"],
            "`max_env_steps` and `max_timesteps` are two ways to set max_env_steps",
        ),
        (["experiment.seed=1", "policy_lr=1", "learning_rate=2"], "two ways to set policy_lr"),
        (["training.total_timesteps=9", "n_timesteps=8"], "two ways to set max_env_steps"),
        (["model_id=mlp_small", "hidden_dims=[8]"], "`model_id` and `hidden_dims` exclude each other"),
    ],
)
def test_two_ways_to_say_one_thing_are_refused(overrides, message):
    if "training.total_timesteps=9" in overrides:
        message = "`max_env_steps` and `n_timesteps` are two ways"
    with pytest.raises(ConfigError, match=message):
        resolve(overrides=overrides)
    resolve(overrides=overrides[-1:])


def test_two_names_in_one_section_are_refused_and_over_what_is_inherited_the_later_counts(tmp_path):
    (tmp_path / "environments").mkdir()
    path = tmp_path / "environments" / "CartPole-v1.yaml"
    path.write_text("env_id: CartPole-v1\nppo: {n_steps: 8, max_env_steps: 100, n_timesteps: 200}\n")
    with pytest.raises(
        ConfigError, match=r"CartPole-v1.yaml, variant ppo: `max_env_steps` and `n_timesteps` are two ways"
    ):
        resolve(config_dir=tmp_path)
    path.write_text(
        "_base: {env_id: CartPole-v1, n_timesteps: 200}\nppo: {n_steps: 8, batch_size: 8, max_env_steps: 100, n_envs: 1}\n"
    )
    assert resolve(config_dir=tmp_path).config.max_env_steps == 100


@pytest.mark.parametrize("name", ["policy_lr", "gamma", "n_steps", "frame_stack"])
def test_null_on_the_command_line_is_no_value_of_what_must_have_one(name):
    with pytest.raises(ConfigError, match=f"`{name}` expects .*, got null. Leave it out"):
        resolve(overrides=[f"{name}=null"])
    with pytest.raises(ConfigError, match=f"`{name}` expects"):
        resolve(**{name: None})


def test_null_is_a_value_where_it_means_something():
    assert resolve(overrides=["max_grad_norm=null", "max_episode_steps=null"]).config.max_grad_norm is None
    assert resolve("FrozenLake-v1:q_learning", overrides=["n_envs=null"]).config.n_envs >= 1


def test_where_a_setting_does_nothing_in_words():
    ppo, q_learning = SCHEMAS["ppo"], SCHEMAS["q_learning"]
    assert idle_places(ppo, "gamma") == []
    assert idle_places(ppo, "replay_is_clip") == ["with `replay_ratio: 0`"]
    assert idle_places(q_learning, "precision") is None


def test_a_class_adds_to_what_those_that_it_is_made_of_declare():
    class Own(Config):
        no_effect = (NoEffect(("n_envs",), "there is one"),)

    assert [rule.names for rule in declared(Own)][-1] == ("n_envs",)
    assert len(declared(Own)) == len(Config.no_effect) + 1


def test_a_preset_of_the_command_line_says_what_it_leaves_as_a_file_has_it():
    (notice,) = [one for one in resolve("Pendulum-v1:tdmpc", size="1m").notices if "size=1m" in one]
    assert notice == "size=1m leaves encoder_hidden, hidden, latent as Pendulum-v1.yaml, variant tdmpc has them."
    assert resolve("Pendulum-v1:tdmpc", size="1m").config.hidden == 128


@pytest.mark.parametrize(
    ("experiment", "fields"),
    [
        ("Pendulum-v1:tdmpc", {}),
        ("Pendulum-v1:tdmpc2", {"size": "1m"}),
        ("Pendulum-v1:tdmpc", {"size": "1m", "hidden": 10, "latent": 10, "encoder_hidden": 10}),
        ("CartPole-v1:dreamer_v3", {"size": "12m"}),
    ],
)
def test_a_preset_that_leaves_nothing_is_silent(experiment, fields):
    assert not [notice for notice in resolve(experiment, **fields).notices if " leaves " in notice]
