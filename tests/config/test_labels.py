"""Labels and thresholds are those of what is trained, whatever file the experiment came from."""

import pytest

from gymlab.api import resolve
from gymlab.errors import ConfigError


def test_another_environment_has_its_own_name_spec_and_threshold():
    plain = resolve("Acrobot-v1:ppo").config
    config = resolve("CartPole-v1:ppo", env_id="Acrobot-v1").config
    assert (config.env_id, config.project_id, config.variant) == ("Acrobot-v1", "Acrobot-v1", "ppo")
    assert config.spec == plain.spec
    assert config.solved_threshold == -100
    # CartPole's variant stops at 490, which no episode of Acrobot reaches.
    assert config.early_stop_on_eval_threshold is True
    assert config.description == ""


def test_an_environment_without_a_file_has_no_threshold_of_another():
    config = resolve("CartPole-v1:ppo", env_id="MountainCarContinuous-v0").config
    assert config.solved_threshold is None
    assert config.project_id == "MountainCarContinuous-v0"


def test_what_is_given_with_it_stays():
    config = resolve(
        "CartPole-v1:ppo", env_id="Acrobot-v1", project_id="mine", early_stop_on_eval_threshold=-90,
        **{"spec.returns.threshold_solved": -80},
    ).config  # fmt: skip
    assert (config.project_id, config.early_stop_on_eval_threshold) == ("mine", -90)
    assert config.solved_threshold == -80
    assert config.spec.description == resolve("Acrobot-v1:ppo").config.spec.description


def test_the_same_environment_keeps_all():
    assert resolve("CartPole-v1:ppo", env_id="CartPole-v1").config == resolve("CartPole-v1:ppo").config
    assert resolve("CartPole-v1:ppo", algo_id="ppo").config == resolve("CartPole-v1:ppo").config


def test_another_algorithm_is_the_variant():
    config = resolve("Acrobot-v1:ppo", algo_id="reinforce").config
    assert (config.algo_id, config.variant, config.solved_threshold) == ("reinforce", "reinforce", -100)


def test_a_variant_that_is_no_variant_is_refused():
    with pytest.raises(
        ConfigError, match="variant=foo: a variant is chosen by the name of the experiment: CartPole-v1:foo"
    ):
        resolve("CartPole-v1:ppo", variant="foo")
    assert resolve("CartPole-v1:ppo", variant="ppo").config.variant == "ppo"
