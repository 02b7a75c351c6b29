"""A metric that nobody will log is refused before anything is built."""

import pytest

from gymlab.api import resolve
from gymlab.engine.workflow import find_workflow
from gymlab.errors import ConfigError

EVALUATES = {"eval_freq_epochs": 2}
NEVER = {"eval_freq_epochs": None}


def until(metric, hooks=("collect",)):
    phase = {"name": "warm", "type": "online", "hooks": list(hooks), "until": {"metric": metric, "at_least": 1}}
    return {"training": {"phases": [phase]}}


def plateau(metric, **_):
    return {"plateau_interventions": [{"metric": metric, "set": {"policy_lr": "*0.5"}}]}


@pytest.mark.parametrize("wait", [until, plateau])
@pytest.mark.parametrize(
    ("metric", "fields", "words"),
    [
        ("train/roll/ep_rew/mena", EVALUATES, "Did you mean 'train/roll/ep_rew/mean'"),
        ("roll/ep_rew/mean", EVALUATES, "Did you mean '(train|val)/roll/ep_rew/mean'"),
        ("val/roll/ep_rew/median", EVALUATES, "Did you mean 'val/roll/ep_rew/mean'"),
        ("val/roll/ep_rew/mean", NEVER, "It is of evaluations, and none takes place here: set eval_freq_epochs"),
        ("test/roll/ep_rew/mean", EVALUATES, "It is measured once, at the end"),
        ("train/cnt/env_steps", EVALUATES, "Counters are .*: a phase's length is duration_steps"),
        ("train/loss/polcy", EVALUATES, "Did you mean 'train/loss/policy'"),
        ("train/controller/return", EVALUATES, ""),
    ],
)
def test_a_metric_that_nobody_logs_is_refused(wait, metric, fields, words):
    with pytest.raises(ConfigError, match=rf"{wait.__name__}.*nobody logs the metric '{metric}'\. ?{words}"):
        resolve("CartPole-v1:ppo", **wait(metric), **fields)


@pytest.mark.parametrize("wait", [until, plateau])
@pytest.mark.parametrize(
    "metric",
    ["train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "train/opt/grads/norm/trunk", "train/loss/policy", "train/policy_lr",
     "train/roll/success/mean", "train/roll/coins/mean"],
)  # fmt: skip
def test_a_metric_that_is_logged_is_taken(wait, metric):
    resolve("CartPole-v1:ppo", **wait(metric), **EVALUATES)


def test_a_phase_that_evaluates_has_evaluations():
    resolve("CartPole-v1:ppo", **until("val/roll/ep_rew/mean", ["collect", "evaluate"]), **NEVER)


def test_who_does_not_say_what_it_logs_may_log_anything(monkeypatch):
    reads = find_workflow("ppo").reads
    monkeypatch.setattr(find_workflow("ppo"), "reads", type(reads)())
    resolve("CartPole-v1:ppo", **until("train/mine/number"), **EVALUATES)
    with pytest.raises(ConfigError, match="nobody logs"):
        resolve("CartPole-v1:ppo", **until("train/roll/ep_rew/mena"), **EVALUATES)
