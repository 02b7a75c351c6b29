"""report.md and its picture, written from what is in a run's directory and from nothing else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.engine.callbacks.alerts import read_alerts
from gymlab.engine.callbacks.video import FINAL_VIDEO
from gymlab.engine.files import write_text
from gymlab.engine.record import is_number, seed_of
from gymlab.engine.run import runs_directory
from gymlab.engine.secrets import blanked_arguments
from gymlab.errors import GymlabError
from gymlab.metrics.csv_file import last_row, read_metrics
from gymlab.metrics.names import ENV_STEPS, EPISODES, UPDATES, WALL_SECONDS
from gymlab.metrics.plots import learning_curve
from gymlab.metrics.redact import REDACTED
from gymlab.metrics.report import ReportData, render_report

if TYPE_CHECKING:
    from gymlab.engine.run import Run

REPORT, CURVE, PICTURES = "report.md", "curve.png", "pictures"


def write_report(run: Run, status: str | None = None) -> ReportData:
    """Draw curve.png and write report.md; `status` wins over what the record says, which at a run's end is not yet written."""
    data = report_data(run)
    if status is not None:
        data = replace(data, status=status)
    rows = read_metrics(run.dir / "metrics.csv")
    learning_curve(rows, run.dir / CURVE, threshold=data.threshold, title=data.experiment)
    data = replace(data, curve=CURVE)
    write_text(run.dir / REPORT, render_report(data))
    return data


def report_data(run: Run) -> ReportData:
    """What the record, the config and the files of a run tell; paths are from the run's directory."""
    record, config = run.record, run.config_data
    if not isinstance(config.get("env_id"), str) or not os.path.lexists(run.dir / "metrics.csv"):
        reason = f" ({record['reason']})" if record.get("reason") else ""
        raise GymlabError(
            f"Run {run.id} has no report: it is {run.status}{reason} and has measured nothing. "
            "A report can be written when its first epoch is over."
        )
    row = {name: value for name, value in last_row(run.dir / "metrics.csv").items() if is_number(value)}
    result = run.result
    counters = record.get("counters") or {}
    links = _linked_checkpoints(run)
    stepped_by = record.get("stepped_by") or record.get("backend")
    versions = record.get("versions") or {}
    video = f"videos/{FINAL_VIDEO}"
    return ReportData(
        experiment=str(record.get("experiment") or config["env_id"]),
        run_id=run.id,
        run_directory=str(run.dir),
        algorithm=str(config.get("algo_id")),
        environment=f"{config['env_id']}, {config.get('n_envs')}{f' × {stepped_by}' if stepped_by else ''}",
        seed=seed_of(record, config) or 0,
        status=_status(run),
        result=result or None,
        env_steps=int(counters.get("env_steps", row.get(ENV_STEPS, 0))),
        updates=int(counters.get("updates", row.get(UPDATES, 0))),
        episodes=int(counters.get("episodes", row.get(EPISODES, 0))),
        wall_seconds=record.get("wall_seconds"),
        training_seconds=float(record.get("seconds") or row.get(WALL_SECONDS, 0.0)),
        command=repeat_command(run),
        threshold=result.get("threshold", record.get("threshold")),
        deterministic=config["eval_deterministic"] if isinstance(config.get("eval_deterministic"), bool) else None,
        best_checkpoint=links.get("best.ckpt"),
        last_checkpoint=links.get("last.ckpt"),
        video=video if (run.dir / video).exists() else None,
        curve=CURVE if (run.dir / CURVE).exists() else None,
        report=REPORT,
        commit=versions.get("commit"),
        versions=versions,
        notices=tuple(record.get("notices") or ()),
        pictures=_pictures(run, record),
        alerts=read_alerts(run.dir),
    )


def repeat_command(run: Run, *, from_here: bool = False) -> str:
    """The command that trains a run anew, with what only the user may name and `...` for what a run does not store.

    `from_here`: by its directory where that is no usual one.
    """
    record, env_kwargs = run.record, run.config_data.get("env_kwargs")
    named = str(run.dir) if from_here and run.dir.parent != runs_directory() else run.id
    again = [("--plugin", name) for name in record.get("plugins") or []]
    named_files = record.get("named_files") or []
    blanked = blanked_arguments(env_kwargs) if isinstance(env_kwargs, dict) else []
    # Those of wrappers are known by what had to be named.
    names = [text.partition("=")[0] for text in named_files if REDACTED in text]
    blanked += [name for name in names if name.partition(".")[0] not in {one.partition(".")[0] for one in blanked}]
    again += [("--env-kwargs", text) for text in named_files if REDACTED not in text]
    again += [("--env-kwargs", f"{name}=...") for name in dict.fromkeys(blanked)]
    return shlex.join(["gymlab", "repeat", named, *(word for pair in again for word in pair)])


def _status(run: Run) -> str:
    """As the end of a run words it: the reason that it gave, with how it is unless that says so."""
    state = run.state
    if not state.reason or state.reason.startswith(state.status):
        return state.reason or state.status
    return state.reason if state.status in ("finished", "stopped") else f"{state.status}: {state.reason}"


def _linked_checkpoints(run: Run) -> dict[str, str]:
    checkpoints = run.dir / "checkpoints"
    return {
        name: f"checkpoints/{os.readlink(checkpoints / name)}"
        for name in ("best.ckpt", "last.ckpt")
        if (checkpoints / name).is_symlink()
    }


def _pictures(run: Run, record: Mapping[str, Any]) -> dict[str, str]:
    """Pictures by the title that they were drawn under; where that was not written down, by the name of the file."""
    titled = record.get("pictures")
    if titled is None:
        files = sorted((run.dir / PICTURES).glob("*.png"))
        titled = {path.stem.replace("-", " ").capitalize(): f"{PICTURES}/{path.name}" for path in files}
    return {title: path for title, path in titled.items() if _is_picture(run, path)}


def _is_picture(run: Run, path: str) -> bool:
    """Whether a path that the record names is a file of the run's own pictures."""
    return Path(path).parent == Path(PICTURES) and "\0" not in path and (run.dir / path).is_file()
