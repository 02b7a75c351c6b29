"""What people type by habit, and what small answers look like: `--run-id`, underscores, JSON errors, a run that is not there."""

import subprocess
import sys

import pytest

from gymlab.cli.arguments import Parser
from gymlab.errors import GymlabError, did_you_mean


@pytest.fixture
def parser():
    made = Parser(prog="gymlab eval", allow_abbrev=False)
    made.add_argument("reference", nargs="?", default="@last", metavar="REF")
    made.add_argument("--max-env-steps", type=int)
    made.add_argument("--keep_this")
    made.accept_run_id()
    return made


@pytest.mark.parametrize(
    "words", [["--run-id", "mine"], ["--run-id=mine"], ["mine"], ["--max-env-steps", "3", "--run-id", "mine"]]
)
def test_a_run_is_named_by_its_word_or_by_an_option(parser, words):
    assert parser.parse(words).reference == "mine"


def test_a_command_that_names_the_run_it_makes_keeps_its_option(parser):
    other = Parser(prog="gymlab repeat", allow_abbrev=False)
    other.add_argument("reference", metavar="REF")
    other.add_argument("--run-id", metavar="ID")
    other.accept_run_id()
    parsed = other.parse(["mine", "--run-id", "again"])
    assert (parsed.reference, parsed.run_id) == ("mine", "again")


def test_two_runs_where_one_is_asked_for(parser):
    with pytest.raises(GymlabError, match="Two runs were given: 'other' and --run-id 'mine'"):
        parser.parse(["other", "--run-id", "mine"])
    with pytest.raises(GymlabError, match="--run-id: expected one argument"):
        parser.parse(["--run-id"])


def test_underscores_stand_for_dashes_in_options_alone(parser):
    words = ["--max_env_steps=3", "--keep_this", "a_b", "n_envs=4", "--", "--max_env_steps"]
    assert parser.plain_options(words) == [
        "--max-env-steps=3",
        "--keep_this",
        "a_b",
        "n_envs=4",
        "--",
        "--max_env_steps",
    ]


@pytest.mark.parametrize(
    "command",
    [["eval"], ["record", "--out", "demos"], ["report"], ["play", "--headless"], ["runs", "show"], ["inspect"]],
)
def test_every_command_that_takes_a_run_takes_it_as_an_option(cli, command):
    done = cli(*command, "--run_id", "no-such-run")
    assert done.code == 2
    assert "No run 'no-such-run' in runs." in done.err


def test_options_of_old_are_understood(cli):
    done = cli("train", "--config_id", "CartPole-v1:ppo", "--max_timesteps", "128", "--cfg", "job", "--json")
    assert done.code == 0
    assert done.json()["max_env_steps"] == 128


@pytest.mark.parametrize(
    "command",
    [
        "eval no-run",
        "record no-run --out d",
        "play no-run --headless",
        "set no-run a=1",
        "train --resume no-run",
        "compare no-run",
    ],
)
def test_a_run_that_is_not_there_is_told_before_torch_is_imported(tmp_path, command):
    code = (
        "import sys; from gymlab.cli.main import main; code = main(sys.argv[1:]); "
        "print([name for name in ('torch', 'gymnasium', 'matplotlib') if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.strip() == "[]"
    assert "error: No run 'no-run' in runs. `gymlab runs` shows what is there." in done.stderr


def test_with_json_an_error_is_json_with_its_code(cli):
    done = cli("eval", "no-such-run", "--json")
    assert done.code == 2
    told = done.json()
    assert told["code"] == 2
    assert told["kind"] == "CheckpointError"
    assert told["error"].startswith("No run 'no-such-run'")
    assert "error: No run" in done.err


def test_an_error_of_ours_is_json_too_and_keeps_its_traceback(cli, monkeypatch, capfd):
    monkeypatch.setattr("gymlab.cli.list.run", lambda arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("list", "--json")
    assert '"kind": "ZeroDivisionError"' in capfd.readouterr().out


def test_a_list_of_nothing_is_a_failure(cli):
    assert cli("list", "zzzz").code == 1
    assert cli("list", "zzzz", "--json").code == 1
    assert cli("list", "cartpole").code == 0


@pytest.mark.parametrize(("name", "known"), [("Plug-v0", "Pendulum-v1"), ("zzzz", "ppo"), ("dog", "ppo")])
def test_what_is_not_near_is_not_asked_for(name, known):
    assert did_you_mean(name, [known, "CartPole-v1"]) == ""


@pytest.mark.parametrize(("name", "known"), [("policy_l", "policy_lr"), ("CartPol-v1", "CartPole-v1"), ("pppo", "ppo")])
def test_what_is_near_is(name, known):
    assert did_you_mean(name, [known, "other"]) == f"Did you mean {known!r}?"


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ("Unknown 'x'.  Known: a.", "Unknown 'x'. Known: a."),
        ("It failed: no such file..", "It failed: no such file."),
        ("See ../conf and 1...3", "See ../conf and 1...3"),
        ("my_env.py:3, in step\n    return  1", "my_env.py:3, in step\n    return  1"),
        ("No dataset. ", "No dataset."),
    ],
)
def test_a_message_of_parts_has_single_spaces_and_stops(parts, whole):
    assert str(GymlabError(parts)) == whole
