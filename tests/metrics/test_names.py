from types import SimpleNamespace

import pytest

from gymlab.errors import ConfigError
from gymlab.metrics import names


def test_a_workflow_name_lands_below_its_purpose():
    assert names.prefixed("train", "loss/policy") == "train/loss/policy"
    for prefix in names.WORKFLOW_PREFIXES:
        assert names.prefixed("train", f"{prefix}/x") == f"train/{prefix}/x"
        assert names.prefixed("val", f"{prefix}/x") == f"val/{prefix}/x"


def test_a_full_name_stays_as_it_is():
    assert names.prefixed("train", "val/roll/ep_rew/mean") == "val/roll/ep_rew/mean"
    assert names.prefixed("train", "sys/speed/env_steps") == "sys/speed/env_steps"


def test_canonical_names_are_those_of_the_design():
    assert names.ENV_STEPS == "train/cnt/env_steps"
    assert names.episode_return("train") == "train/roll/ep_rew/mean"
    assert names.episode_return("val", "best") == "val/roll/ep_rew/best"
    assert names.episode_length("val") == "val/roll/ep_len/mean"
    assert names.hyperparameter("policy_lr") == "train/policy_lr"


def test_namespace_groups_by_purpose_and_area():
    assert names.namespace("train/roll/ep_rew/mean") == "train/roll"
    assert names.namespace("train/policy_lr") == "train"
    assert names.namespace("sys/speed/env_steps") == "sys"
    assert names.namespace("alone") == "alone"


def test_counter_row_has_all_counters_under_train_cnt():
    counters = SimpleNamespace(env_steps=1, frames=2, vec_steps=3, updates=4, episodes=5, epoch=6)
    assert list(names.counter_row(counters).values()) == [1, 2, 3, 4, 5, 6]
    assert all(name.startswith("train/cnt/") for name in names.counter_row(counters))


@pytest.mark.parametrize("bad", ["", "/x", "x/", "a,b", 'a"b', "a\nb"])
def test_a_bad_name_is_refused(bad):
    with pytest.raises(ConfigError, match="no metric name"):
        names.prefixed("train", bad)


def test_an_unknown_purpose_names_the_nearest():
    with pytest.raises(ConfigError, match="'train'"):
        names.prefixed("trian", "loss/policy")
