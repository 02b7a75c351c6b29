"""Whatever lies where a run has a file: words that name it and the fix, no traceback, no waiting, and no other run hidden."""

import contextlib
import json
import os
import shutil
import socket

import pytest
from asking import ask
from run_makers import make_run

from gymlab.errors import GymlabError
from gymlab.inspector.routes import HttpError, Inspector

TEXTS = {
    "empty": b"",
    "torn": b'{"status": "fin',
    "binary": bytes(range(256)) * 4,
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "text": b'"words"',
    "deep": b"[" * 5000,
    "long number": b'{"seed": ' + b"9" * 5000 + b"}",
    "not a number": b'{"seed": NaN}',
    "other encoding": '{"description": "größer"}'.encode("utf-16"),
}
KINDS = ("pipe", "socket", "directory", "link to nowhere", "link to itself", "link to a device")
NAMES = (
    "config.json",
    "config.start.json",
    "run.json",
    "metrics.csv",
    "alerts.json",
    "changes.jsonl",
    "run.lock",
    "run.log",
    ".run.json.lock",
    "report.md",
    "checkpoints",
)
COMMANDS = {
    "runs": ("runs",),
    "runs --sort": ("runs", "--sort", "steps", "--json"),
    "runs show": ("runs", "show", "tiny"),
    "runs show --json": ("runs", "show", "tiny", "--json"),
    "prune --dry-run": ("runs", "prune", "tiny", "--dry-run", "--include-last"),
    "prune --status damaged": ("runs", "prune", "tiny", "--status", "damaged", "--dry-run"),
    "report": ("report", "tiny"),
    "report --json": ("report", "tiny", "--json"),
    "report of many": ("report", "*"),
    "set": ("set", "tiny"),
    "set a value": ("set", "tiny", "policy_lr=0.001"),
    "compare": ("compare", "tiny", "whole"),
    "compare by a setting": ("compare", "*", "--group", "n_envs"),
    "eval": ("eval", "tiny", "--episodes", "1"),
    "play": ("play", "tiny", "--headless", "--episodes", "1"),
    "init": ("train", "CartPole-v1:ppo", "--init-from-run", "tiny", "max_env_steps=64", "--cfg", "job"),
    "resume": ("train", "--resume", "tiny", "max_env_steps=640", "-q"),
    "prune --yes": ("runs", "prune", "tiny", "--yes", "--include-last"),
    "prune damaged --yes": ("runs", "prune", "tiny", "--status", "damaged", "--yes", "--include-last"),
}
PAGES = (
    *("metrics", "curves?metric=train/roll/ep_rew/mean", "marks", "hyperparameters", "checkpoints"),
    *("agent?checkpoint=best", "pipeline?checkpoint=best", "world_model"),
)


def put(path, kind):
    """Something else than a regular file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
                server.bind(path.name)
        case "directory":
            path.mkdir()
        case "link to nowhere":
            path.symlink_to("nowhere")
        case "link to itself":
            path.symlink_to(path.name)
        case "link to a device":
            path.symlink_to("/dev/zero")


@pytest.fixture
def runs(trained, tmp_path):
    """A real run, `tiny`, to be damaged, and a whole one beside it."""
    directory = tmp_path / "runs"
    shutil.copytree(trained, directory, symlinks=True)
    result = {"mean": 480.0, "ci95": [470.0, 490.0], "n": 10, "threshold": 475.0, "solved": True}
    rows = "train/cnt/env_steps,sys/time/wall,train/roll/ep_rew/mean\n100,1.0,20.0\n200,2.0,30.0\n"
    make_run(directory, "whole", metrics=rows, result=result, command="gymlab train", config={"n_envs": 4})
    return directory


def check_all(cli, runs, name, commands):
    """Every command ends with a code of its own and words; the whole run is in every list."""
    for command in commands:
        try:
            shown = cli(*COMMANDS[command])
        except BaseException as error:
            raise AssertionError(f"gymlab {' '.join(COMMANDS[command])}: {type(error).__name__}: {error}") from error
        assert shown.code in (0, 1, 2), command
        assert "Traceback" not in shown.err, command
        if shown.code:
            assert "tiny" in shown.err or name in shown.err, (command, shown.err)
        if command.startswith("runs") and "show" not in command:
            assert "whole" in shown.out, command
    inspector = Inspector(runs)
    listed = json.loads(ask(inspector, "/api/runs").body)["runs"]
    assert "whole" in [run["id"] for run in listed]
    for page in PAGES:
        path, _, query = page.partition("?")
        with contextlib.suppress(GymlabError, HttpError):
            ask(inspector, f"/api/runs/tiny/{path}", **dict(part.split("=") for part in query.split("&") if part))


PLACES = {
    **dict.fromkeys(("checkpoints", "videos", "episodes", "episodes/test", "non_finite", "replay"), ("file", "pipe")),
    **dict.fromkeys(("checkpoints/last.ckpt", "checkpoints/best.ckpt"), ("file", "directory")),
    "videos/final.mp4": ("pipe", "directory"),
}
"""Directories, links and videos of a run, with what may lie there instead."""


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in PLACES.items() for kind in kinds])
def test_what_a_resumed_run_could_not_write_is_named_before_anything_is_changed(cli, runs, name, kind):
    path = runs / "tiny" / name
    path.parent.mkdir(exist_ok=True)
    put(path, None if kind == "file" else kind)
    if kind == "file":
        path.touch()
    before = contents(runs / "tiny")
    shown = cli(*COMMANDS["resume"])
    assert shown.code == 2
    assert f"tiny/{name} is a" in shown.err
    assert "look at what it is, then delete it" in shown.err
    assert contents(runs / "tiny") == before


def contents(directory):
    """Every path below a directory with its size and the time at which it was changed."""
    found = {path: path.lstat() for path in directory.rglob("*")}
    return {path: (status.st_mtime_ns, status.st_size, status.st_ino) for path, status in found.items()}


QUICK = ("runs", "runs show --json", "report", "prune --status damaged")
"""What meets every damage; the others meet one of each sort."""
OF_EACH_SORT = ("torn", "a list", "not a number", "pipe", "directory", "link to itself")


@pytest.mark.parametrize("damage", [*TEXTS, *KINDS])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file(cli, runs, name, damage):
    path = runs / "tiny" / name
    if damage in TEXTS:
        put(path, None)
        path.write_bytes(TEXTS[damage])
    else:
        put(path, damage)
    check_all(cli, runs, name, [each for each in COMMANDS if damage in OF_EACH_SORT or each in QUICK])
