"""Interventions fire when a metric stands still, rest, and are the same in a resumed run."""

import shutil

import pytest
import torch

import gymlab
from gymlab.config.schema import PlateauIntervention
from gymlab.engine.callbacks.plateau import Watch
from gymlab.engine.changes import ChangeLog

SMALL = {
    "n_envs": 8,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "policy_lr": 3e-4,
    "quiet": True,
    "video": False,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
    "eval_freq_epochs": 2,
    "early_stop_on_eval_threshold": False,
    "keep_checkpoints": 9,
    "seed": 7,
    "max_env_steps": 12 * 128,
}


def rule(**fields):
    return PlateauIntervention(**{"metric": "m", "set": {"policy_lr": 0.1}, **fields})


def fired_at(values, **fields):
    """Epochs at which a rule fires; None is an epoch without the metric."""
    watch = Watch(rule(**fields))
    return [epoch for epoch, value in enumerate(values, 1) if value is not None and watch.fires(value, epoch)]


@pytest.mark.parametrize(
    ("values", "fields", "expected"),
    [
        # The best before the window is that of the first value: three more that are no better make it full.
        ([5, 4, 5, 3], {"window": 3}, [4]),
        ([5, 4, 5, 6, 6, 6, 6], {"window": 3}, [7]),
        ([1, 2, 3, 4, 5, 6], {"window": 3}, []),
        ([1, 1, 1], {"window": 3}, []),
        # 6 is better than 5 by 1, which is not more than 1.
        ([5, 6, 5, 5], {"window": 3, "min_improvement": 1.0}, [4]),
        ([5, 6.5, 5, 5], {"window": 3, "min_improvement": 1.0}, []),
        # A new window begins after it has fired: 2 values further, not 1.
        ([1, 1, 1, 1, 1, 1, 1], {"window": 2}, [3, 5, 7]),
        # It rests in epochs 4 to 6, and then wants two values of its own.
        ([1] * 12, {"window": 2, "cooldown": 3}, [3, 8]),
        # What was reached while resting must be passed as well.
        ([1, 1, 9, 5, 5], {"window": 1, "cooldown": 1}, [2, 4]),
        # Epochs without the metric count for the rest only.
        ([1, None, 1, None, None, 1, None, 1], {"window": 2}, [6]),
        ([1, None, 1, None, 1, None, 1, None, 1], {"window": 1, "cooldown": 3}, [3, 7]),
        # Less is better.
        ([3, 4, 3, 5], {"window": 3, "mode": "min"}, [4]),
        ([3, 2, 1, 0], {"window": 2, "mode": "min"}, []),
    ],
)
def test_when_it_fires(values, fields, expected):
    assert fired_at(values, **fields) == expected


def test_a_watch_goes_on_from_its_state():
    values = [1, 3, 2, 2, 2, 2, 5, 5, 5, 5, 1, 1]
    expected = fired_at(values, window=3, cooldown=1)
    assert expected
    for cut in range(len(values)):
        fired, watch = [], Watch(rule(window=3, cooldown=1))
        for epoch, value in enumerate(values, 1):
            if epoch == cut:
                saved, watch = watch.get_state(), Watch(rule(window=3, cooldown=1))
                watch.set_state(saved)
            if watch.fires(value, epoch):
                fired.append(epoch)
        assert fired == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("*0.5", 0.1), ("/4", 0.05), ("+0.1", 0.3), ("- 1e-1", 0.1), (0.7, 0.7), (None, None)]
)
def test_new_values(text, expected):
    assert rule(set={"policy_lr": text}).new_value("policy_lr", 0.2) == pytest.approx(expected)


def test_nothing_cannot_be_halved():
    with pytest.raises(ValueError, match="is not set"):
        rule(set={"target_kl": "*0.5"}).new_value("target_kl", None)


# Evaluations of so short episodes stand still: `ep_len` is at most 20, and at 2 values a window it fires in epoch 6, 10, ...
STANDING = "val/roll/ep_rew/best"


def intervene(**fields):
    return [{"metric": STANDING, "window": 2, "min_improvement": 100, **fields}]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    rules = intervene(set={"policy_lr": "*0.5", "gamma": "+0.1"})
    return gymlab.train(
        "CartPole-v1:ppo",
        runs_dir=tmp_path_factory.mktemp("plateau"),
        run_id="whole",
        gamma=0.8,
        plateau_interventions=rules,
        **SMALL,
    )


def test_an_intervention_is_seen_everywhere(whole):
    """Evaluated in epochs 2, 4, 6...: the third value fills a window of two, the fifth the next one."""
    assert whole.metrics["train/policy_lr"] == [None] * 6 + [1.5e-4] * 4 + [7.5e-5] * 2
    assert whole.metrics["train/gamma"][6:] == pytest.approx([0.9] * 4 + [1.0] * 2)
    report = (whole.dir / "report.md").read_text()
    assert f"policy_lr: 0.0003 -> 0.00015 at 768 env steps ({STANDING} no better in 2 values)" in report
    changes = [(change.name, change.epoch, change.by_hand) for change in ChangeLog(whole.dir).read()]
    assert changes == [(name, epoch, False) for epoch in (6, 10) for name in ("policy_lr", "gamma")]


@pytest.mark.parametrize("epoch", [4, 6, 8])
def test_a_resumed_run_intervenes_at_the_same_epochs(whole, tmp_path, epoch):
    shutil.copytree(whole.dir, tmp_path / "cut", symlinks=True)
    resumed = gymlab.resume("cut", epoch=epoch, runs_dir=tmp_path)
    for name, values in whole.metrics.items():
        assert name.startswith("sys/") or resumed.metrics[name] == values, name
    first, second = (run.checkpoints.find().read_model() for run in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    made = [[(c.name, c.epoch, c.before, c.to) for c in ChangeLog(run.dir).read()] for run in (whole, resumed)]
    assert made[0] == made[1]


def test_a_value_that_a_field_refuses_leaves_it_as_it_was(tmp_path):
    rules = intervene(set={"gamma": "+0.5", "target_kl": "*0.5", "ent_coef": 0.01})
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", plateau_interventions=rules, **SMALL)
    assert "train/gamma" not in run.metrics
    assert run.metrics["train/ent_coef"][6:] == [0.01] * 6
    report = (run.dir / "report.md").read_text()
    assert "must lie between 0 and 1" in report
    assert "target_kl stays none at 768 env steps" in report


def test_what_was_undone_by_hand_is_the_start_of_the_next_intervention(whole, tmp_path):
    """The file holds 3e-4 all the time; asking for it again still counts."""
    shutil.copytree(whole.dir, tmp_path / "cut", symlinks=True)
    gymlab.set_hyperparameters("cut", runs_dir=tmp_path, policy_lr=3e-4)
    resumed = gymlab.resume("cut", epoch=8, runs_dir=tmp_path)
    assert resumed.metrics["train/policy_lr"] == [None] * 6 + [1.5e-4] * 2 + [3e-4] * 2 + [1.5e-4] * 2
