"""Which runs are seeds of one experiment."""

import json

import pytest

from gymlab.config.identity import WITHOUT_RESULT, result_settings
from gymlab.config.schema import Config
from gymlab.engine.registry import read_entry
from gymlab.engine.run import Run
from gymlab.engine.seed_groups import seed_groups


@pytest.fixture
def make(tmp_path):
    """A run with a config and a record, as a listing reads it."""

    def made(run_id, *, seed=0, record=None, changes=(), **config):
        folder = tmp_path / run_id
        folder.mkdir()
        config = {"env_id": "CartPole-v1", "algo_id": "ppo", "seed": seed, **config}
        (folder / "config.json").write_text(json.dumps(config))
        record = {"status": "finished", "experiment": "CartPole-v1:ppo", "seed": seed, **(record or {})}
        (folder / "run.json").write_text(json.dumps(record))
        (folder / "changes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changes))
        return read_entry(Run(folder))

    return made


def grouped(*entries):
    groups, notices = seed_groups(entries, lambda entry: entry.experiment)
    return {group.label: [entry.id for entry in group.entries] for group in groups}, notices


def test_seeds_of_one_config_are_one_group_whatever_is_printed_kept_or_filmed(make):
    entries = [make(f"s{seed}", seed=seed, quiet=bool(seed), video=False, description=str(seed)) for seed in (1, 0)]
    assert grouped(*entries) == ({"CartPole-v1:ppo": ["s0", "s1"]}, [])


def test_other_settings_are_other_groups_with_the_keys_named(make):
    entries = [
        make("a", seed=0, n_envs=4, env_kwargs={"gravity": 9.8}),
        make("b", seed=1, n_envs=8, env_kwargs={"gravity": 9.8}),
        make("c", seed=2, n_envs=8, env_kwargs={"gravity": 1.0}),
    ]
    groups, (notice,) = grouped(*entries)
    assert groups == {
        "CartPole-v1:ppo, n_envs=4, env_kwargs.gravity=9.8": ["a"],
        "CartPole-v1:ppo, n_envs=8, env_kwargs.gravity=9.8": ["b"],
        "CartPole-v1:ppo, n_envs=8, env_kwargs.gravity=1": ["c"],
    }
    assert "3 groups here, by n_envs and env_kwargs.gravity." in notice


def test_a_schedule_is_one_setting(make):
    linear = {"start": 0.001, "end": 0.0, "from": 0.0, "to": 1.0, "schedule": "linear", "warmup": 0.0}
    budget = {"max_env_steps": 2048}
    groups, (notice,) = grouped(make("a", policy_lr=linear, **budget), make("b", policy_lr=1e-4, **budget))
    assert list(groups) == ["CartPole-v1:ppo, policy_lr=linear 0.001 to 0", "CartPole-v1:ppo, policy_lr=0.0001"]
    assert "2 groups here, by policy_lr." in notice


def test_a_label_has_only_the_keys_that_it_takes(make):
    groups, (notice,) = grouped(make("a", policy_lr=0.1, gamma=0.9), make("b", policy_lr=0.2, gamma=0.8))
    assert list(groups) == ["CartPole-v1:ppo, gamma=0.9", "CartPole-v1:ppo, gamma=0.8"]
    assert "by gamma and policy_lr." in notice


def test_values_that_differ_far_behind_still_have_names_of_their_own(make):
    long = "x" * 40
    groups, _ = grouped(make("a", dataset=f"{long}a"), make("b", dataset=f"{long}b"))
    assert len(groups) == 2


def test_a_key_that_an_earlier_release_did_not_write_is_no_difference(make):
    assert grouped(make("old", seed=0), make("new", seed=1, eval_episodes=100))[0] == {
        "CartPole-v1:ppo": ["old", "new"]
    }
    assert len(grouped(make("other", seed=2), make("few", seed=3, eval_episodes=10))[0]) == 2


def test_the_same_seed_counts_once_and_a_finished_run_before_one_that_is_not(make):
    finished = make("finished", record={"started": 1.0})
    newer = make("newer", record={"started": 2.0})
    cut = make("cut", record={"started": 3.0, "status": "stopped"})
    groups, notices = grouped(cut, newer, finished)
    assert groups == {"CartPole-v1:ppo": ["newer"]}
    assert notices == [
        "cut is left out: finished is a finished run of the same seed and settings.",
        "finished is left out: newer is a newer run of the same seed and settings.",
    ]


def test_what_was_changed_while_it_trained_is_a_difference(make):
    line = {"time": 1.0, "epoch": 3, "env_steps": 6000, "name": "policy_lr", "from": 0.1, "to": 0.01}
    line |= {"source": "gymlab set", "asked": 1.0, "by_hand": True}
    groups, _ = grouped(make("plain", seed=0), make("changed", seed=1, changes=[line]))
    assert groups == {
        "CartPole-v1:ppo, policy_lr at 6,000 env steps=unset": ["plain"],
        "CartPole-v1:ppo, policy_lr at 6,000 env steps=0.01": ["changed"],
    }
    # What a schedule or a plateau did by itself comes from the config.
    assert len(grouped(make("p", seed=0), make("q", seed=1, changes=[{**line, "by_hand": False}]))[0]) == 1


def test_seeds_of_different_versions_are_said(make):
    entries = [make(f"s{n}", seed=n, record={"versions": {"commit": commit}}) for n, commit in enumerate("ab")]
    groups, (notice,) = grouped(*entries)
    assert len(groups) == 1
    assert notice == "CartPole-v1:ppo: its runs are of different versions of gymlab: a, b."


def test_what_has_no_effect_on_the_result_are_settings_that_there_are():
    assert set(WITHOUT_RESULT) <= set(Config.model_fields)
    data = {"seed": 1, "spec": {"description": "x", "returns": {"threshold_solved": 475.0, "random": 20}}, "n_envs": 2}
    assert result_settings(data) == {"spec.returns.threshold_solved": 475.0, "n_envs": 2}
