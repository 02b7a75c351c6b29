"""`gymlab set`: what it shows, what it writes, what it refuses."""

import json
import shutil

import pytest


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of the finished tiny run, to be changed."""
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


def test_without_values_it_shows_what_can_change(cli, runs):
    shown = cli("set", "tiny")
    assert shown.code == 0
    lines = {line.split()[0]: line for line in shown.out.splitlines()[2:] if line.strip()}
    assert "0.98" in lines["gamma"]
    assert "linear 0.001 to 0" in lines["policy_lr"]
    assert "none" in lines["target_kl"]
    assert "n_envs" not in lines


@pytest.mark.parametrize("reference", ["tiny", "@last", "runs/tiny"])
def test_a_run_that_does_not_train_takes_it_on_resume(cli, runs, reference):
    shown = cli("set", reference, "policy_lr=1e-4", "target_kl=0.02")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines() == [
        "policy_lr: linear 0.001 to 0 -> 0.0001",
        "target_kl: none -> 0.02",
        "tiny takes them when it is resumed (it is finished): gymlab train --resume tiny",
    ]
    config = json.loads((runs / "tiny" / "config.json").read_text())
    assert (config["policy_lr"], config["target_kl"]) == (1e-4, 0.02)
    resumed = cli("train", "--resume", "tiny", "max_env_steps=640", "-q")
    assert resumed.code == 0, resumed.err
    assert "policy_lr: 0.0002 -> 0.0001 at 512 env steps (gymlab set)" in (runs / "tiny" / "report.md").read_text()


def test_json(cli, runs):
    found = cli("set", "tiny", "ent_coef=0.01", "--json").json()
    assert found["changed"] == {"ent_coef": {"from": 0.0, "to": 0.01}}
    assert (found["run"], found["status"]) == ("tiny", "finished")
    assert found["hyperparameters"]["ent_coef"] == {"value": 0.0, "wanted": 0.01}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["tiny", "n_envs=3"], ["`n_envs` cannot change while a run trains.", "  gamma          0.98"]),
        (["tiny", "weight_decay=0.1"], ["`weight_decay` cannot change while a run trains."]),
        (["tiny", "polcy_lr=3"], ["Did you mean 'policy_lr'?", "  target_kl      none"]),
        (["tiny", "policy_lr=-1"], ["`policy_lr`: must not be negative."]),
        (["tiny", "policy_lr=lin_-1"], ["must not be negative"]),
        (["tiny", "policy_lr=null"], ["expects a number or a schedule, got null"]),
        (["tiny", "gamma=0.5", "clip_range={strt: 1}"], ["clip_range", "'start'"]),
        (["tiny", "policy_lr"], ["'policy_lr' is no key=value", "policy_lr=1e-4"]),
        (["policy_lr=3"], ["gymlab set @last policy_lr=3"]),
        (["tinny", "policy_lr=3"], ["'tiny'"]),
    ],
)
def test_refusals_name_the_fix_and_change_nothing(cli, runs, words, parts):
    before = (runs / "tiny" / "config.json").read_bytes()
    shown = cli("set", *words)
    assert shown.code == 2
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 24
    for part in parts:
        assert part in shown.err
    assert (runs / "tiny" / "config.json").read_bytes() == before
    assert not (runs / "tiny" / "changes.jsonl").exists()


def test_a_value_that_it_has_is_said(cli, runs):
    assert cli("set", "tiny", "gamma=0.98").out == "tiny: has these values already\n"
