"""Wishes and changes on disk: what is due, what is made again, and that no crash or bad line is mistaken for one."""

import json

import pytest

from gymlab.config import dump
from gymlab.config.schema import Config, Scalar
from gymlab.engine.changes import (
    BY_COMMAND,
    Change,
    ChangeLog,
    ask,
    due,
    field_of,
    read_config_file,
    split_settings,
    to_make_again,
    tunables,
)
from gymlab.engine.files import write_json
from gymlab.errors import CheckpointError, ConfigError


class Tuned(Config):
    """Two hyperparameters."""

    policy_lr: Scalar = 0.1
    target_kl: Scalar | None = None
    n_steps: int = 5


CONFIG = Tuned(env_id="E", algo_id="a", max_env_steps=100)


@pytest.fixture
def run_dir(tmp_path):
    for name in ("config.start.json", "config.json"):
        write_json(tmp_path / name, dump(CONFIG))
    return tmp_path


def made(name, to, epoch, **fields):
    return Change(name, to, "config.json", float(epoch), before=0.0, epoch=epoch, env_steps=epoch * 10, **fields)


def wishes(directory):
    wanted, _ = split_settings(read_config_file(directory / "config.json"), Tuned)
    return due(wanted, CONFIG, ChangeLog(directory).read())


def edit(directory, **fields):
    write_json(directory / "config.json", read_config_file(directory / "config.json") | fields)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("policy_lr", "policy_lr"),
        ("learning_rate", "policy_lr"),
        ("experiment.policy_lr", "policy_lr"),
        ("policy_lr.end", "policy_lr"),
        ("policy_lr_schedule_end_value", "policy_lr"),
        ("learning_rate_schedule", "policy_lr"),
    ],
)
def test_the_field_of_a_key(key, name):
    assert field_of(key) == name


SCHEDULE = {"schedule": "linear", "start": 1.0, "end": 0.0}


def test_lines_come_back_and_a_torn_one_does_not(tmp_path):
    log = ChangeLog(tmp_path)
    assert log.read() == []
    log.append([made("policy_lr", 0.2, 3)])
    with log.path.open("a") as file:
        file.write('{"name": "policy_lr", "to"')
    assert log.read() == [made("policy_lr", 0.2, 3)]
    log.append([made("policy_lr", SCHEDULE, 4)])
    assert log.read() == [made("policy_lr", 0.2, 3), made("policy_lr", SCHEDULE, 4)]
    line = json.loads(log.path.read_text().splitlines()[0])
    assert (line["name"], line["from"], line["to"], line["epoch"], line["env_steps"]) == ("policy_lr", 0.0, 0.2, 3, 30)


WHOLE = made("policy_lr", 0.2, 3).to_line()


@pytest.mark.parametrize(
    "line",
    [
        *("{}", "[1]", "no", '{"from": 1, "other": 2}', "[" * 5000, "\xff", "1" * 5000),
        WHOLE.replace("0.2", '"high"').strip(),
        WHOLE.replace("0.2", '{"start": 1}').strip(),
        WHOLE.replace("0.2", "NaN").strip(),
        WHOLE.replace('"policy_lr"', "[]").strip(),
        WHOLE.replace('"epoch": 3', '"epoch": "x"').strip(),
    ],
)
def test_a_bad_line_is_named(tmp_path, line):
    (tmp_path / "changes.jsonl").write_text(line + "\n")
    with pytest.raises(CheckpointError, match=r"changes\.jsonl, line 1"):
        ChangeLog(tmp_path).read()


def test_rewinding_forgets_only_what_comes_about_by_itself(tmp_path):
    log = ChangeLog(tmp_path)
    kept = [
        made("policy_lr", 0.2, 3, by_hand=False),
        made("policy_lr", 0.3, 6),
        Change("policy_lr", 1, "gymlab set", 0),
    ]
    log.append([*kept, made("policy_lr", 0.1, 4, by_hand=False)])
    log.rewind(3)
    assert log.read() == kept


def test_what_is_made_again():
    first, second, third = made("policy_lr", 0.2, 3), made("policy_lr", 0.3, 6), made("target_kl", 0.1, 6)
    own = made("policy_lr", 0.01, 5, by_hand=False)
    log = [Change("policy_lr", 0.2, "gymlab set", 0), first, own, second, third]
    assert to_make_again(log, 0) == [first, second, third]
    assert to_make_again(log, 4) == [second, third]
    assert to_make_again(log, 7) == []
    newer = made("policy_lr", 0.9, 2)
    assert to_make_again([*log, newer], 0) == [third, newer]


def test_nothing_is_due_until_the_file_differs(run_dir):
    assert wishes(run_dir) == ([], {})
    edit(run_dir, policy_lr=0.2)
    (wish,), refused = wishes(run_dir)
    assert (wish.name, wish.to, wish.source, wish.epoch, refused) == ("policy_lr", 0.2, "config.json", None, {})
    ChangeLog(run_dir).append([made("policy_lr", 0.2, 1)])
    assert wishes(run_dir) == ([], {})


@pytest.mark.parametrize(
    "spelling",
    [
        {"policy_lr": "lin_0.5"},
        {"policy_lr": {"start": 0.5}},
        {"policy_lr": 0.5, "policy_lr_schedule": "linear"},
        {"learning_rate": "lin_0.5"},
    ],
)
def test_every_spelling_of_a_schedule(run_dir, spelling):
    edit(run_dir, **spelling)
    (wish,), _ = wishes(run_dir)
    assert wish.to == {"start": 0.5, "end": 0.0, "from": 0.0, "to": 1.0, "schedule": "linear", "warmup": 0.0}
    ChangeLog(run_dir).append([made("policy_lr", wish.to, 1)])
    assert wishes(run_dir) == ([], {})


def test_a_bad_value_does_not_keep_a_good_one_from_being_taken(run_dir):
    edit(run_dir, policy_lr="quick", target_kl=0.02)
    (wish,), refused = wishes(run_dir)
    assert (wish.name, wish.to) == ("target_kl", 0.02)
    assert "expects a number or a schedule" in refused["policy_lr"]


def test_asking_writes_the_file_and_the_log(run_dir):
    (change,) = ask(run_dir, CONFIG, [("policy_lr", 0.2)], BY_COMMAND)
    assert (change.before, change.to) == (0.1, 0.2)
    assert read_config_file(run_dir / "config.json") == dump(CONFIG) | {"policy_lr": 0.2}
    (wish,), _ = wishes(run_dir)
    assert (wish.source, wish.asked) == ("gymlab set", change.time)
    ChangeLog(run_dir).append([made("policy_lr", 0.2, 1, asked=change.time)])
    assert wishes(run_dir) == ([], {})
    assert ask(run_dir, CONFIG, [("policy_lr", 0.2)], BY_COMMAND) == []
    assert [tunable.value for tunable in tunables(run_dir, CONFIG)] == [0.2, None]


def test_asking_for_the_files_own_value_undoes_what_the_run_did_by_itself(run_dir):
    ChangeLog(run_dir).append([made("policy_lr", 0.05, 1, by_hand=False)])
    assert wishes(run_dir) == ([], {})
    ask(run_dir, CONFIG, [("policy_lr", 0.1)], BY_COMMAND)
    (wish,), _ = wishes(run_dir)
    assert (wish.name, wish.to) == ("policy_lr", 0.1)


def test_asking_lies_on_top_of_the_present_value(run_dir):
    ask(run_dir, CONFIG, [("policy_lr.end", 0.01)], BY_COMMAND)
    assert read_config_file(run_dir / "config.json")["policy_lr"]["start"] == 0.1
    edit(run_dir, policy_lr_schedule="cosine")
    ask(run_dir, CONFIG, [("learning_rate", 0.4)], BY_COMMAND)
    assert read_config_file(run_dir / "config.json") == dump(CONFIG) | {"policy_lr": 0.4}


@pytest.mark.parametrize(("key", "value"), [("n_steps", 3), ("polcy_lr", 3), ("policy_lr", None), ("policy_lr", "x")])
def test_one_bad_value_and_nothing_is_asked_for(run_dir, key, value):
    before = (run_dir / "config.json").read_bytes()
    with pytest.raises(ConfigError):
        ask(run_dir, CONFIG, [("target_kl", 0.1), (key, value)], BY_COMMAND)
    assert (run_dir / "config.json").read_bytes() == before
    assert not (run_dir / "changes.jsonl").exists()


def test_what_cannot_change_is_refused_with_what_can(run_dir):
    with pytest.raises(ConfigError) as error:
        ask(run_dir, CONFIG, [("n_steps", 3)], BY_COMMAND)
    assert str(error.value).splitlines() == [
        "`n_steps` cannot change while a run trains.",
        "What can, with its value now:",
        "  policy_lr  0.1",
        "  target_kl  none",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1', "\udcff"])
def test_a_file_that_is_no_config_is_named_with_the_way_out(run_dir, text):
    (run_dir / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"config\.json .*config\.start\.json"):
        ask(run_dir, CONFIG, [("policy_lr", 1.0)], BY_COMMAND)


def test_a_run_from_before_there_was_a_second_file_keeps_its_config(run_dir):
    (run_dir / "config.start.json").unlink()
    ask(run_dir, CONFIG, [("policy_lr", 0.2)], BY_COMMAND)
    assert read_config_file(run_dir / "config.start.json") == dump(CONFIG)
