"""Hyperparameters over the page's door: judged like those of `gymlab set`, for runs that train alone."""

import json
import shlex
import shutil

import pytest

from gymlab.api import get_hyperparameters
from gymlab.cli.main import find_command
from gymlab.engine.changes import ChangeLog
from gymlab.engine.lock import run_lock
from gymlab.inspector.routes import HttpError, Inspector

ADDRESS = "/api/runs/one/hyperparameters"


@pytest.fixture
def copied(runs, tmp_path):
    """A run of its own, to be changed."""
    shutil.copytree(runs / "cartpole-s1", tmp_path / "one", symlinks=True)
    return tmp_path


def test_what_can_change_is_told_as_the_command_line_tells_it(call, copied):
    found = call(ADDRESS, inspector=Inspector(copied))
    known = get_hyperparameters("one", runs_dir=copied)
    assert found["status"] == "finished"
    assert [one["name"] for one in found["hyperparameters"]] == [one.name for one in known]
    by_name = {one["name"]: one for one in found["hyperparameters"]}
    assert by_name["gamma"]["example"] == repr(next(one.value for one in known if one.name == "gamma"))
    assert by_name["target_kl"]["example"] == "null"
    assert by_name["policy_lr"]["value"].startswith("linear 0.001")
    assert by_name["ent_coef"]["takes"] == "a number or a schedule"
    assert by_name["ent_coef"]["about"] == "Weight of the entropy bonus."


def test_a_run_that_trains_is_asked(call, copied):
    inspector = Inspector(copied)
    with run_lock(copied / "one"):
        answer = call(
            ADDRESS, inspector=inspector, method="POST", body={"values": {"ent_coef": "0.02", "vf_coef": "lin_0.4"}}
        )
    assert answer["changed"] == ["ent_coef: 0 → 0.02", "vf_coef: 1 → linear 0.4 to 0"]
    wanted = {one["name"]: one["wanted"] for one in answer["hyperparameters"]}
    assert (wanted["ent_coef"], wanted["gamma"]) == ("0.02", None)
    assert json.loads((copied / "one" / "config.json").read_text())["ent_coef"] == 0.02
    assert [(change.name, change.source) for change in ChangeLog(copied / "one").read()] == [
        ("ent_coef", "gymlab set"),
        ("vf_coef", "gymlab set"),
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"policy_lr": "-1"}, "must not be negative"),
        ({"policy_lr": "fast"}, "policy_lr"),
        ({"policy_rl": "1"}, "'policy_lr'"),
        ({"n_envs": "4"}, "`n_envs` cannot change while a run trains."),
        ({"ent_coef": "0.5", "policy_lr": "-1"}, "must not be negative"),
    ],
)
def test_a_value_that_is_refused_changes_nothing_and_says_why(call, copied, values, reason):
    before = (copied / "one" / "config.json").read_bytes()
    with run_lock(copied / "one"):
        answer = call(ADDRESS, inspector=Inspector(copied), method="POST", body={"values": values})
    assert reason in answer["refused"]
    assert answer["changed"] == []
    assert (copied / "one" / "config.json").read_bytes() == before


def test_a_run_that_does_not_train_is_left_alone(call, copied):
    with pytest.raises(HttpError, match=r"gymlab train --resume one ent_coef=0\.1") as refused:
        call(ADDRESS, inspector=Inspector(copied), method="POST", body={"values": {"ent_coef": "0.1"}})
    assert refused.value.status == 409


def test_the_command_to_go_on_with_another_value_can_be_typed(call, copied):
    value = "{start: 0.1, end: 0}"
    with pytest.raises(HttpError) as refused:
        call(ADDRESS, inspector=Inspector(copied), method="POST", body={"values": {"ent_coef": value}})
    _, _, command = str(refused.value).partition("gymlab ")
    _, _, parser, rest = find_command(shlex.split(command))
    parsed = parser.parse(rest)
    assert (parsed.resume, parsed.words, parsed.runs_dir) == ("one", [f"ent_coef={value}"], str(copied))


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"values": {}},
        {"values": {"ent_coef": 0.1}},
        {"values": {"ent_coef": ""}},
        {"values": {"ent_coef": "1\n2"}},
        {"values": {"ent_coef": "1" * 400}},
        {"values": {"../x": "1"}},
        {"values": {"~ent_coef": "1"}},
        {"values": {f"a{index}": "1" for index in range(50)}},
    ],
)
def test_odd_requests_are_refused(call, copied, body):
    with run_lock(copied / "one"), pytest.raises(HttpError) as refused:
        call(ADDRESS, inspector=Inspector(copied), method="POST", body=body)
    assert refused.value.status == 400
