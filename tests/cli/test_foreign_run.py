"""A run from somebody else whose files are links: no command writes, creates or deletes anything outside of it."""

import os
import shutil

import pytest

FILES = (
    "run.lock",
    ".run.json.lock",
    "run.log",
    "run.json",
    "metrics.csv",
    "config.json",
    "config.start.json",
    "changes.jsonl",
    "alerts.json",
    "report.md",
    "curve.png",
    "videos/final.mp4",
    "videos/play-epoch=0004-s0.mp4",
    "pictures/values.png",
    "checkpoints/last.ckpt",
    "non_finite/batch.safetensors",
)
DIRECTORIES = (
    "checkpoints",
    "checkpoints/epoch=0002.ckpt",
    "checkpoints/epoch=0005.ckpt",
    "pictures",
    "videos",
    "replay",
    "episodes",
    "episodes/train",
    "non_finite",
    "tensorboard",
    "wandb",
)
WRITING = {
    "resume": ("train", "--resume", "tiny", "max_env_steps=640", "eval_episodes=1", "keep_episodes=2", "--quiet"),
    "set": ("set", "tiny", "policy_lr=1e-4"),
    "report": ("report", "tiny"),
    "thin": ("runs", "prune", "tiny", "--checkpoints-only", "--include-last", "--yes"),
}
"""Commands that write into a run's directory."""
MOVING = {
    "prune": ("runs", "prune", "tiny", "--include-last", "--yes"),
    "restore": ("runs", "restore", "tiny"),
    "empty": ("runs", "prune", "--empty-trash", "--yes"),
}
"""Commands that move or delete the directory with its links."""


@pytest.fixture
def foreign(trained, tmp_path):
    """`foreign(name, kind)` -> a copy of the run in which that name is a link to a place outside."""
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    run, outside = tmp_path / "runs" / "tiny", tmp_path / "outside"
    outside.mkdir()

    def make(name, kind):
        path, target = run / name, outside / "target"
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "as it was" and os.path.lexists(path):
            shutil.move(path, target, copy_function=shutil.copy2)
            if target.is_symlink():
                target.unlink()
        if kind == "pipe":
            os.mkfifo(target)
        elif kind == "as it was" and name in DIRECTORIES:
            target.mkdir(exist_ok=True)
            (target / "precious").write_text("precious")
        elif kind == "as it was" and not target.exists():
            target.write_text("precious")
        if os.path.lexists(path):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.symlink_to(target)
        return outside

    return make


def content(directory):
    """Every path below a directory with what it is and holds."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(directory.rglob("*"))
    }


CASES = [(name, "as it was") for name in (*FILES, *DIRECTORIES)]
CASES += [(name, "nothing") for name in ("run.lock", "run.log", "metrics.csv", "videos", "checkpoints", "pictures")]
CASES += [(name, "pipe") for name in ("run.lock", "run.log", "changes.jsonl", "report.md")]


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda text: text.replace("/", "-"))
def test_nothing_is_written_through_a_link(cli, foreign, name, kind, command):
    outside = foreign(name, kind)
    before = content(outside)
    done = cli(*WRITING[command])
    assert content(outside) == before
    # Where no checkpoint is spare, nothing is done.
    assert done.code != 0 or "nothing to prune" in done.out
    # A run without a readable config or record is refused for that.
    if name not in ("config.json", "config.start.json", "run.json", "metrics.csv") and command != "thin":
        assert f"{name} leads out of" in done.err
        assert "delete them" in done.err


@pytest.mark.parametrize("command", MOVING)
@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda text: text.replace("/", "-"))
def test_a_run_is_thrown_away_and_brought_back_without_what_its_links_lead_to(
    cli, foreign, tmp_path, name, kind, command
):
    outside = foreign(name, kind)
    if command != "prune":
        (tmp_path / "runs" / ".trash").mkdir()
        os.rename(tmp_path / "runs" / "tiny", tmp_path / "runs" / ".trash" / "tiny-20260101-000000-000000")
    before = content(outside)
    done = cli(*MOVING[command])
    assert content(outside) == before
    if command == "prune" and name == "run.lock":
        # Nobody can say whether such a run trains.
        assert done.code == 1
        assert "run.lock is a link" in done.err
    elif command != "prune" or name not in ("config.json", "config.start.json", "run.json", "metrics.csv"):
        assert done.code == 0, done.err


def test_a_video_is_not_saved_through_a_link(cli, foreign):
    outside = foreign("videos", "as it was")
    before = content(outside)
    done = cli("play", "tiny", "--headless", "--episodes", "1", "--save")
    assert "videos leads out of" in done.err
    assert content(outside) == before


def test_a_runs_directory_that_is_reached_through_links_is_as_good_as_any(cli, trained, tmp_path):
    (tmp_path / "disk").mkdir()
    shutil.copytree(trained, tmp_path / "disk" / "runs", symlinks=True)
    (tmp_path / "runs").symlink_to("disk/runs")
    (tmp_path / "mine").symlink_to(tmp_path / "disk" / "runs" / "tiny")
    for command in ("set", "report", "resume"):
        done = cli(*WRITING[command])
        assert done.code == 0, done.err
    assert cli("report", tmp_path / "mine").code == 0
    assert cli("train", "--resume", tmp_path / "mine", "max_env_steps=768", "eval_episodes=1", "--quiet").code == 0
    assert cli(*WRITING["thin"]).code == 0
    assert cli(*MOVING["prune"]).code == 0
    assert cli(*MOVING["restore"]).code == 0
    assert (tmp_path / "disk" / "runs" / "tiny" / "report.md").is_file()
