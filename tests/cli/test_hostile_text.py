"""Text of a stranger's run reaches people as letters: no escape sequences, no other direction, no markup, no formula."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from run_makers import make_run

from gymlab.metrics.terminal import clean

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b5n\u202egnp\u2066\r\ud800[/red]"
COLOURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]")
"""What rich itself writes on a terminal."""


@pytest.fixture
def runs(tmp_path):
    """Runs whose every text is hostile, with a name of a directory and a run in the trash to match."""
    directory = tmp_path / "runs"
    texts = dict.fromkeys(("experiment", "reason", "command", "host", "backend", "stepped_by"), EVIL)
    for number, status in enumerate(("finished", "running", EVIL, "crashed")):
        run = make_run(
            directory,
            f"evil-{number}",
            config={"env_id": EVIL, "algo_id": EVIL, "variant": EVIL, "project_id": EVIL, "description": EVIL},
            metrics=f"train/cnt/env_steps,sys/time/wall,train/roll/ep_rew/mean,{clean_name(EVIL)}\n10,1.0,5.0,1.0\n",
            status=status,
            **texts,
            seed=EVIL if number == 2 else number,
            notices=[EVIL],
            versions={EVIL: EVIL, "commit": EVIL},
            resumed=[{"from": EVIL, "time": 1.0}],
            result={"mean": 1.0, "ci95": [0.5, 1.5], "n": 4, "threshold": 2.0, EVIL: EVIL},
            pictures={EVIL: "picture.png"},
            checkpoints=(1,),
        )
        (run.dir / "picture.png").write_bytes(b"")
        recap = {"id": EVIL, "metric": EVIL, "message": EVIL, "tip": EVIL, "count": 1, "epochs": 1}
        recap |= dict.fromkeys(("first_env_steps", "last_env_steps", "first_epoch", "last_epoch"), 1)
        (run.dir / "alerts.json").write_text(json.dumps([recap]))
        for link in ("best", "last"):
            (run.dir / "checkpoints" / f"{link}.ckpt").unlink(missing_ok=True)
            (run.dir / "checkpoints" / f"{link}.ckpt").symlink_to(EVIL.replace("/", "").encode("utf-8", "replace"))
    (make_run(directory, "torn").dir / "run.json").write_text(json.dumps([EVIL]))
    (directory / os.fsdecode(EVIL.replace("/", "").encode("utf-8", "replace"))).mkdir()
    trash = directory / ".trash"
    make_run(trash, "a" + EVIL.replace("/", "").replace("\ud800", "") + "-20260101-000000-000000")
    (directory / "@last").symlink_to(EVIL.replace("/", "").replace("\ud800", ""))
    return directory


def clean_name(text):
    """A name that a metric may have: no line end within."""
    return text.replace("\r", "").replace("\ud800", "")


COMMANDS = {
    "runs": ["runs"],
    "runs show": ["runs", "show", "evil-0"],
    "runs show of a running one": ["runs", "show", "evil-1"],
    "runs show of a damaged one": ["runs", "show", "torn"],
    "runs prune": ["runs", "prune", "evil", "--dry-run", "--include-last"],
    "prune checkpoints": ["runs", "prune", "evil", "--dry-run", "--checkpoints-only"],
    "runs restore": ["runs", "restore"],
    "report": ["report", "evil-0"],
    "report of many": ["report", "evil-*"],
    "compare": ["compare", "evil-*", "--group", "experiment"],
    "compare by a setting": ["compare", "evil-*", "--group", "description"],
    "compare by another metric": ["compare", "evil-*", "--metric", EVIL.replace("\ud800", "")],
    "set": ["set", "evil-0"],
    "eval": ["eval", "evil-0"],
    "the last run": ["eval"],
    "record": ["record", "evil-0"],
    "play": ["play", "evil-0", "--headless"],
    "resume": ["train", "--resume", "evil-0"],
    "train a config of a run": ["train", "runs/evil-0/config.json"],
    "init from a run": ["train", "CartPole-v1:ppo", "--init-from-run", "evil-0", "max_env_steps=64"],
    "an unknown run": ["eval", EVIL.replace("\ud800", "")],
}


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_run(cli, runs, monkeypatch, command, terminal):
    monkeypatch.setenv("COLUMNS", "160")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    shown = cli(*COMMANDS[command])
    assert shown.code in (0, 1, 2)
    text = shown.out + shown.err
    text = COLOURS.sub("", text) if terminal else text
    assert text == clean(text)
    assert text.strip()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name.startswith(("runs", "report", "compare"))])
def test_json_is_safe_to_look_at_and_tells_the_same(cli, runs, command):
    shown = cli(*COMMANDS[command], "--json")
    assert shown.out == clean(shown.out)
    assert shown.err == clean(shown.err)
    if shown.code == 0:
        shown.json()
    if command == "runs":
        assert EVIL in {run["experiment"] for run in shown.json()["runs"]}


def test_what_is_written_into_a_run_is_clean_too(cli, runs):
    assert cli("report", "evil-0").code == 0
    text = (runs / "evil-0" / "report.md").read_text()
    assert text == clean(text)
    assert "]0;owned" in text


def test_a_line_of_the_table_stays_one(cli, runs):
    make_run(runs, "two-lines", experiment="first\nforged  finished", reason="first\u2028second")
    lines = [line for line in cli("runs").out.splitlines() if "first" in line or line.startswith("forged")]
    assert len(lines) == 1
    assert lines[0].startswith("two-lines")


def test_the_heading_of_a_resumed_run(cli, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    path = tmp_path / "runs" / "tiny" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"experiment": EVIL, "command": EVIL, "stepped_by": EVIL}))
    shown = cli("train", "--resume", "tiny", "max_env_steps=640", "video=false")
    assert shown.code == 0, shown.err
    assert shown.out + shown.err == clean(shown.out + shown.err)
    assert "]0;owned" in shown.out
    log = (tmp_path / "runs" / "tiny" / "run.log").read_text()
    assert log == clean(log)


def test_an_error_of_a_plugin(tmp_path):
    (tmp_path / "evil_env.py").write_text(f"raise RuntimeError({EVIL.replace(chr(0xD800), '')!r})")
    command = [sys.executable, "-m", "gymlab", "train", "CartPole-v1:ppo", "--plugin", "evil_env"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    text = done.stderr.decode()
    assert done.returncode == 2
    assert text.startswith("error: evil_env.py:1, in <module>: RuntimeError: ")
    assert text == clean(text)


def test_a_traceback_in_the_program_itself(tmp_path):
    """An error that no command understands is printed by the interpreter, outside of any command."""
    (tmp_path / "evil_env.py").write_text(
        "import gymlab.cli.train\n\n\ndef fail(*arguments):\n"
        f"    raise RuntimeError({EVIL.replace(chr(0xD800), '')!r})\n\n\ngymlab.cli.train.run_summary = fail\n"
    )
    tiny = ["max_env_steps=64", "n_envs=2", "n_steps=16", "batch_size=16", "eval_freq_epochs=null", "eval_episodes=1"]
    command = [sys.executable, "-m", "gymlab", "train", "CartPole-v1:ppo", *tiny, "video=false", "-q", "--json"]
    command += ["--plugin", "evil_env"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    text = done.stderr.decode()
    assert done.returncode == 1
    assert "Traceback" in text
    assert text == clean(text)


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_table_is_taken_for_a_formula(cli, tmp_path, sign):
    formula = f'{sign}HYPERLINK("http://evil","x")'
    row = "train/cnt/env_steps,sys/time/wall,train/roll/ep_rew/mean\n10,1.0,-5.0\n"
    for number in range(2):
        settings = {"env_id": formula, "description": formula}
        record = {"seed": number, "result": {"mean": -5.0, "ci95": [-6.0, -4.0], "n": 2}}
        make_run(tmp_path / "runs", f"evil-{number}", config=settings, metrics=row, experiment=formula, **record)
    assert cli("compare", "evil-*").code == 0
    with (tmp_path / "comparison" / "compare.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert len(rows) == 1
    cells = dict(zip(header, rows[0], strict=True))
    assert cells["environment"] == cells["group"] == "'" + clean(formula)
    assert float(cells["mean"]) == -5.0
