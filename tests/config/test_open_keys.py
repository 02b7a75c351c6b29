"""Keys of `spec`, `params` and `dims`: those of people's files load, and what nobody knows or reads is refused by name."""

import pytest

from gymlab.api import resolve
from gymlab.config import bind_dimensions
from gymlab.errors import ConfigError

PUBLIC = """
env_id: CartPole-v1
spec:
  source: https://example.org
  description: Balance a pole.
  goal: stay up
  render_fps: 60
  modes: {values: [0, 1], default: 0}
  versions: {v1: longer}
  action_space: {discrete: 2, labels: {0: left, 1: right}, valid: [0, 1], full_space: {count: 18}, note: none}
  observation_space: {default: state, variants: {state: {shape: [4], components: [{name: x, range: [-1, 1]}]}}}
  rewards: {per_step: +1, life_lost: -1, range: [0, 500]}
  returns: {episodic: steps, range: [0, 500], threshold_solved: 400}
ppo: {}
"""


def test_descriptions_of_peoples_files_load(conf, write):
    write("environments/mine.yaml", PUBLIC)
    assert resolve("mine:ppo", config_dir=conf).config.solved_threshold == 400


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{foo: 3}", r"mine.yaml:2, variant ppo: unknown key `spec.foo`. Known under spec: description"),
        ("{retruns: {}}", "unknown key `spec.retruns`. Did you mean 'returns'"),
        ("{returns: {treshold_solved: 400}}", "`spec.returns.treshold_solved`. Did you mean 'threshold_solved'"),
        ("{action_space: {label: {0: up}}}", "`spec.action_space.label`. Did you mean 'labels'"),
    ],
)
def test_unknown_keys_of_a_description_are_refused(conf, write, spec, words):
    write("environments/mine.yaml", f"env_id: CartPole-v1\nspec: {spec}\nppo: {{}}\n")
    with pytest.raises(ConfigError, match=words):
        resolve("mine:ppo", config_dir=conf)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("spec.returns.treshold_solved=400", "`spec.returns.treshold_solved`. Did you mean 'threshold_solved'"),
        ("spec.foo=3", "unknown key `spec.foo`"),
        ("spec={foo: 3}", "unknown key `spec.foo`"),
        ("spec.action_space.discrete=7", "`spec.action_space.discrete` describes the environment in its file"),
        ("params.foo=3", r"nothing refers to `params.foo` as \${params.foo}. What is referred to: none"),
        ("params={foo: 3}", "nothing refers to `params.foo`"),
        ("dims.foo=3", r"nothing refers to `dims.foo` as \${_dims.foo}"),
        ("_dims.foo=3", "nothing refers to `dims.foo`"),
    ],
)
def test_what_is_typed_is_read(setting, words):
    with pytest.raises(ConfigError, match=words):
        resolve("CartPole-v1:ppo", overrides=[setting])


def test_what_is_read_may_be_typed():
    settings = (
        *("spec.returns.threshold_solved=400", "spec.action_space.labels.0=port", "dims.action=2"),
        *("params.inner={rate: 1e-3}", "policy_lr=${params.inner.rate}"),
    )
    config = resolve("CartPole-v1:ppo", overrides=settings).config
    assert (config.solved_threshold, config.policy_lr) == (400, 1e-3)
    with pytest.raises(ConfigError, match=r"`params.rat`.* Did you mean 'params.rate'"):
        resolve("CartPole-v1:ppo", overrides=["params.rate=1", "params.rat=1", "policy_lr=${params.rate}"])


def test_values_of_a_file_that_nothing_refers_to_are_told_in_a_line(conf, write):
    write("environments/mine.yaml", "env_id: CartPole-v1\nparams: {a: 1, b: 2, c: 3}\nppo: {n_epochs: '${params.b}'}\n")
    notices = resolve("mine:ppo", config_dir=conf).notices
    assert "mine.yaml:2, variant ppo: nothing refers to `params.a`, `params.c`." in notices


@pytest.mark.parametrize("written", ["[84, 84, 4]", "4.5", "four", "[a]"])
def test_a_dimension_that_is_written_is_the_environments(written):
    config = resolve("CartPole-v1:ppo", overrides=[f"dims.observation={written}"]).config
    with pytest.raises(
        ConfigError, match=r"_dims.observation is .* in the config, but CartPole-v1 has 4: leave it out"
    ):
        bind_dimensions(config, observation=4)


def test_a_shape_counts_as_its_numbers():
    config = resolve("CartPole-v1:ppo", overrides=["dims.observation=[2, 2]"]).config
    assert bind_dimensions(config, observation=4) is config


def test_the_settings_that_a_threshold_holds_for_are_no_unknown_key():
    spec = resolve("CartPole-v1:ppo", overrides=["max_episode_steps=20"]).config.spec
    assert spec.task == {"env_kwargs": {}, "max_episode_steps": None}
    assert spec.returns["threshold_solved"] == 475
