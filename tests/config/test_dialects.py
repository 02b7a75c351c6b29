"""Every older or looser way of writing a field."""

import pytest
from config_helpers import load_experiment, of_what_is_written

from gymlab.config.schema import Schedule
from gymlab.errors import ConfigError


@pytest.mark.parametrize("name", ["n_timesteps", "max_timesteps", "max_env_steps"])
@pytest.mark.parametrize("value", ["1e5", "!!float 1e5", "100_000", "100000"])
def test_three_generations_of_the_budget(load_variant, name, value):
    config = load_variant(f"{name}: {value}")
    assert config.max_env_steps == 100_000
    assert type(config.max_env_steps) is int


@pytest.mark.parametrize("name", ["learning_rate", "policy_lr"])
def test_learning_rate(load_variant, name):
    assert load_variant(f"{name}: 1e-3").policy_lr == 1e-3


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("subproc: true", "async"),
        ("subproc: false", "sync"),
        ("vectorization_mode: async", "async"),
        ("vectorization_mode: native", "native"),
        ("vectorization_mode: atari", "native"),
        ("vectorization_mode: null", "auto"),
    ],
)
def test_vectorization(load_variant, line, mode):
    assert load_variant(line).vectorization_mode == mode


@pytest.mark.parametrize("name", ["frameskip", "frame_skip"])
def test_frame_skip(load_variant, name):
    assert load_variant(f"{name}: 4").frame_skip == 4


@pytest.mark.parametrize(
    ("lines", "obs", "reward"),
    [
        ("normalize: true", "rolling", True),
        ("normalize: false", "off", False),
        ("normalize_obs: true", "rolling", False),
        ("normalize_obs: static\nnormalize_reward: true", "static", True),
        ("normalize_obs: off", "off", False),
        ("normalize_obs: false", "off", False),
        ("normalize: true\nnormalize_reward: false", "rolling", False),
    ],
)
def test_normalization(load_variant, lines, obs, reward):
    config = load_variant(lines)
    assert (config.normalize_obs, config.normalize_reward) == (obs, reward)


@pytest.mark.parametrize(("value", "targets"), [("true", "advantages"), ("false", "returns")])
def test_use_baseline(load_variant, value, targets):
    assert load_variant(f"use_baseline: {value}").policy_targets == targets


def test_a_switch_that_is_no_switch(load_variant):
    with pytest.raises(
        ConfigError, match=r"CartPole-v1.yaml:4, variant ppo: `subproc` expects true or false, got 'many'"
    ):
        load_variant("subproc: many")


def test_hidden_dims_and_activation(load_variant):
    config = load_variant("hidden_dims: [256, 256]\nactivation: relu")
    assert (config.hidden_dims, config.activation, config.model_id) == ((256, 256), "relu", None)


def test_of_model_id_and_layers_the_one_closer_to_the_variant_counts(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
_old: &old {algo_id: ppo, hidden_dims: [32], activation: relu}
_new: &new {algo_id: ppo, model_id: mlp_small}
newer: {<<: *old, model_id: mlp_large}
older: {<<: *new, hidden_dims: [16]}
""",
    )
    newer = load_experiment("CartPole-v1:newer", config_dir=conf).config
    assert (newer.model_id, newer.hidden_dims, newer.activation) == ("mlp_large", (64, 64), "tanh")
    older = load_experiment("CartPole-v1:older", config_dir=conf).config
    assert (older.model_id, older.hidden_dims) == (None, (16,))
    override = load_experiment("CartPole-v1:newer", "hidden_dims=[8, 8]", config_dir=conf).config
    assert (override.model_id, override.hidden_dims) == (None, (8, 8))


def test_of_two_names_of_one_field_the_one_closer_to_the_variant_counts(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
_base: {algo_id: ppo, policy_lr: 0.1, n_timesteps: 100, n_envs: 1}
ppo: {learning_rate: 0.2, max_env_steps: 200}
""",
    )
    config = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (config.policy_lr, config.max_env_steps) == (0.2, 200)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("policy: MlpPolicy", "policy", "mlp"),
        ("policy: CnnPolicy", "policy", "cnn"),
        ("policy: cnn_actorcritic", "policy", "cnn_actorcritic"),
        ("policy: MyOwnNetwork", "policy", "MyOwnNetwork"),
        ("returns_type: montecarlo:reward_to_go", "returns_type", "mc:rtg"),
        ("returns_type: episode", "returns_type", "mc:episode"),
        ("advantages_type: baseline_subtraction", "advantages_type", "baseline"),
        ("normalize_advantages: true", "normalize_advantages", "batch"),
        ("normalize_advantages: off", "normalize_advantages", "off"),
        ("clip_range_vf: off", "clip_range_vf", None),
        ("clip_range_vf: null", "clip_range_vf", None),
        ("resize_obs: true", "resize_obs", (84, 84)),
        ("resize_obs: [96, 64]", "resize_obs", (96, 64)),
        ("resize_obs: 64", "resize_obs", (64, 64)),
        ("resize_obs: false", "resize_obs", None),
        ("eval_freq_epochs: 0", "eval_freq_epochs", None),
        ("eval_freq_epochs: null", "eval_freq_epochs", None),
        ("eval_freq_epochs: 5", "eval_freq_epochs", 5),
        ("n_epochs: 1e1", "n_epochs", 10),
        ('n_epochs: "7"', "n_epochs", 7),
        ('target_kl: "1e-2"', "target_kl", 0.01),
        ("frame_stack: null", "frame_stack", 1),
        ("seed: 0", "seed", 0),
        ("reward_threshold: -110", "reward_threshold", -110.0),
        ("devices: auto", "devices", "auto"),
        ("render_mode: 'rgb_array'", "render_mode", "rgb_array"),
        ("init_from_run: '@last/@best'", "init_from_run", "@last/@best"),
        ("env_wrappers: [DiscreteEncoder]", "env_wrappers", ({"id": "DiscreteEncoder"},)),
        ("env_wrappers: [{id: A, x: 1e-3}]", "env_wrappers", ({"id": "A", "x": 1e-3},)),
        ("env_kwargs: {map_name: 4x4, p: 1e-3}", "env_kwargs", {"map_name": "4x4", "p": 1e-3}),
    ],
)
def test_values(load_variant, line, field, value):
    assert getattr(load_variant(line), field) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("false", False), ("475", 475.0), ("-100", -100.0), ("0", 0.0), ("19.5", 19.5)],
)
@pytest.mark.parametrize("field", ["early_stop_on_eval_threshold", "early_stop_on_train_threshold"])
def test_thresholds_are_switches_or_numbers(load_variant, field, value, expected):
    threshold = getattr(load_variant(f"{field}: {value}"), field)
    assert threshold == expected
    assert type(threshold) is type(expected)


def test_wrappers_need_an_id(load_variant):
    with pytest.raises(ConfigError, match=r"CartPole-v1.yaml:4.*a wrapper is a name or a mapping with an `id`"):
        load_variant("env_wrappers: [{name: A}]")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("policy_lr: lin_0.001", Schedule(start=0.001)),
        ("learning_rate: lin_3e-4", Schedule(start=3e-4)),
        ("policy_lr: {start: 1e-3}", Schedule(start=1e-3)),
        (
            "policy_lr: {start: 1e-3, end: 1e-5, from: 0.1, to: 0.9, schedule: cosine, warmup: 0.1}",
            Schedule(start=1e-3, end=1e-5, **{"from": 0.1}, to=0.9, schedule="cosine", warmup=0.1),
        ),
        ("policy_lr: 0.1\npolicy_lr_schedule: linear", Schedule(start=0.1)),
        ("learning_rate: 0.1\nlearning_rate_schedule: linear", Schedule(start=0.1)),
        (
            "policy_lr: 0.5\npolicy_lr_schedule: linear\npolicy_lr_schedule_start_value: 0.1\n"
            "policy_lr_schedule_end_value: 0.01\npolicy_lr_schedule_start: 0.25\npolicy_lr_schedule_end: 5000",
            Schedule(start=0.1, end=0.01, **{"from": 0.25}, to=5000),
        ),
        ("policy_lr: lin_0.1\npolicy_lr_schedule: cosine", Schedule(start=0.1, schedule="cosine")),
        ("policy_lr: 0.1\npolicy_lr_schedule: null\npolicy_lr_schedule_end: 0.5", 0.1),
    ],
)
def test_schedules_in_every_form(load_variant, lines, expected):
    assert load_variant(f"max_env_steps: 10000\n{lines}").policy_lr == expected


def test_schedules_wherever_a_number_is_taken(load_variant):
    config = load_variant(
        "max_env_steps: 800\nclip_range: lin_0.2\nent_coef: {start: 0.1, end: 0.01}\ngamma: {start: 0.9, end: 1}"
    )
    assert config.clip_range == Schedule(start=0.2)
    assert config.ent_coef == Schedule(start=0.1, end=0.01)
    assert config.gamma == Schedule(start=0.9, end=1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "policy_lr: lin_0.1\nmax_env_steps: null",
            r"`policy_lr`: the schedule position 1 is a fraction of the budget",
        ),
        ("policy_lr: {start: 1, from: 500, to: 100}", "schedule of policy_lr: the schedule ends at 100"),
        ("policy_lr: {start: 1, to: 1000, schedule: exponential}", "never reaches or crosses"),
        ("policy_lr: {end: 1}", "`start` is missing"),
        ("policy_lr: {start: 1, too: 2}", "unknown key `too`. Did you mean 'to'"),
        ("policy_lr: {start: fast}", '`start` expects a number, got "fast"'),
        ("n_steps: lin_5", '`n_steps` expects an integer, got "lin_5"'),
    ],
)
def test_schedules_that_cannot_be(load_variant, line, words):
    with pytest.raises(ConfigError, match=words) as error:
        load_variant(line)
    assert "CartPole-v1.yaml:4" in str(error.value)


def test_a_schedule_may_count_on_epochs_for_its_budget(load_variant):
    assert load_variant("policy_lr: lin_0.1\nmax_epochs: 10").policy_lr == Schedule(start=0.1)


def test_fields_without_meaning_are_told(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nppo:\n  eval_async: true\n  seed_val: 3\n")
    assert of_what_is_written(load_experiment("CartPole-v1:ppo", config_dir=conf)) == (
        "CartPole-v1.yaml:3, variant ppo: `eval_async` no longer means anything: evaluation takes place between epochs.",
        "CartPole-v1.yaml:4, variant ppo: `seed_val` no longer means anything: "
        "every purpose has its own stream below `seed`.",
    )


def test_plateau_interventions(load_variant):
    config = load_variant(
        "plateau_interventions: [{metric: val/roll/ep_rew/mean, window: 8, min_improvement: 1, "
        'set: {policy_lr: "*0.5", ent_coef: 0.02}, cooldown: 4}]'
    )
    rule = config.plateau_interventions[0]
    assert (rule.metric, rule.window, rule.cooldown) == ("val/roll/ep_rew/mean", 8, 4)
    assert rule.set == {"policy_lr": "*0.5", "ent_coef": 0.02}
