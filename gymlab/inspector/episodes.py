"""Episode: an agent is played, and every step of it can be looked at, exported and filmed."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.engine.trace import TraceStep
from gymlab.inspector.frames import media_type, png
from gymlab.inspector.loading import checkpoint_list, checkpoint_name, read_agent
from gymlab.inspector.routes import Body, HttpError, Inspector, Request, Response, download, json_response, route
from gymlab.inspector.traces import Trace, Traces, Wish
from gymlab.metrics.comparison import spreadsheet_cell
from gymlab.metrics.video import VideoWriter

MOST_STEPS = 20_000
LARGEST_SEED = 2**31 - 1
VIEWS = ("raw", "processed", "stacked")
TRACE_ID = re.compile(r"[0-9a-f]{12}")
FOR_EVER = {"Cache-Control": "private, max-age=86400, immutable"}
"""A picture of a trace never changes, so the browser asks for it once."""


@route("GET", "/api/runs/{run}/checkpoints")
def checkpoints(request: Request, run: str) -> Response:
    """The checkpoints of a run, newest first, and the one that is best."""
    found = checkpoint_list(request.run(run))
    return json_response({"checkpoints": found})


@route("POST", "/api/traces")
def start_trace(request: Request) -> Response:
    """Play an agent: {run, checkpoint, deterministic, seed, steps}; an equal wish gets the trace there is."""
    body = Body(request.body, ("run", "checkpoint", "deterministic", "seed", "steps"))
    run = request.run(body.text("run", 128))
    deterministic = body.flag("deterministic", True)
    saved = read_agent(request.inspector, run, body.text("checkpoint", 64, "best"))
    wish = Wish(
        run.id,
        checkpoint_name(saved.checkpoint),
        saved.written,
        deterministic,
        body.integer("seed", 0, low=0, high=LARGEST_SEED),
        body.integer("steps", 500, low=1, high=MOST_STEPS),
    )
    trace = traces_of(request.inspector).start(wish, saved.build)
    return json_response(progress(trace), 202)


@route("GET", "/api/traces/{trace}")
def trace_progress(request: Request, trace: str) -> Response:
    """How far a trace has come, and what it holds."""
    return json_response(progress(find_trace(request.inspector, trace)))


@route("POST", "/api/traces/{trace}/cancel")
def cancel_trace(request: Request, trace: str) -> Response:
    """Stop playing."""
    found = find_trace(request.inspector, trace)
    if found.status == "waiting":
        found.status = "cancelled"
    found.cancelled.set()
    return json_response(progress(found))


@route("GET", "/api/traces/{trace}/steps", query=("start", "count"))
def steps(request: Request, trace: str) -> Response:
    """Rows of the step table, by column."""
    found = finished(request.inspector, trace)
    start = request.integer("start", 0, low=0, high=MOST_STEPS)
    count = request.integer("count", MOST_STEPS, low=1, high=MOST_STEPS)
    return json_response(columns(found, slice(start, start + count)))


@route("GET", "/api/traces/{trace}/observations/{step}")
def observation(request: Request, trace: str, step: str) -> Response:
    """What the agent saw at a step, as numbers: as the environment gave it and as the network took it."""
    found = find_trace(request.inspector, trace)
    place = _place(step, len(found.observations))
    return json_response(
        {"observation": _short(found.observations[place]), "processed": _short(found.processed[place])}
    )


@route("GET", "/api/traces/{trace}/path", query=("x", "y"))
def path(request: Request, trace: str) -> Response:
    """Two entries of the observation over all steps, and where episodes begin: the way through a plane."""
    found = find_trace(request.inspector, trace)
    if not found.observations or found.observations[0].ndim != 1:
        raise HttpError(404, "Observations of this rollout are no vectors.")
    entries = len(found.observations[0])
    x, y = (request.integer(name, default, low=0, high=entries - 1) for name, default in (("x", 0), ("y", 1)))
    # The newest frame of a stack is the last one.
    stack = max(1, found.stack)
    offset = entries - entries // stack
    points = np.stack([seen[[offset + x, offset + y]] for seen in found.observations])
    return json_response(
        {"x": _short(points[:, 0]), "y": _short(points[:, 1]), "first": [step.step == 0 for step in found.steps]}
    )


@route("GET", "/api/traces/{trace}/frames/{frame}", query=("view",))
def frame(request: Request, trace: str, frame: str) -> Response:
    """One picture: as drawn, as the network sees its newest frame, or all frames that it sees side by side."""
    found = find_trace(request.inspector, trace)
    view = request.text("view", "raw", choices=VIEWS)
    pictures = found.frames if view == "raw" else found.strips
    place = _place(frame, len(pictures))
    blob = pictures.blob(place)
    if view == "processed" and found.film is not None and found.film.count > 1:
        blob = png(found.film.newest(pictures.pixels(place)))
    return Response(blob, media_type(blob), headers=FOR_EVER)


@route("GET", "/api/traces/{trace}/steps.csv")
def steps_csv(request: Request, trace: str) -> Response:
    """The step table as a file."""
    found = finished(request.inspector, trace)
    return download(table_text(found).encode(), "text/csv; charset=utf-8", f"{_file_stem(found)}.csv")


@route("GET", "/api/traces/{trace}/episode.mp4")
def video(request: Request, trace: str) -> Response:
    """The pictures as a film, at the environment's own speed."""
    found = finished(request.inspector, trace)
    if not len(found.frames):
        raise HttpError(404, "There are no pictures to film: this environment draws nothing.")
    with tempfile.TemporaryDirectory(prefix="gymlab-film-") as directory:
        path = Path(directory) / "episode.mp4"
        with VideoWriter(path, found.fps, max_frames=len(found.frames)) as film:
            for picture in found.frames:
                film.add(picture)
        return download(path.read_bytes(), "video/mp4", f"{_file_stem(found)}.mp4")


def traces_of(inspector: Inspector) -> Traces:
    """The traces of a server."""
    return inspector.shared("traces", Traces)


def find_trace(inspector: Inspector, trace_id: str) -> Trace:
    """The trace of that id; 404 when it was dropped or never was."""
    trace = traces_of(inspector).get(trace_id) if TRACE_ID.fullmatch(trace_id) else None
    if trace is None:
        raise HttpError(404, "This rollout is no longer kept. Play it again.")
    return trace


def finished(inspector: Inspector, trace_id: str) -> Trace:
    """The trace of that id; an error while it is being played."""
    trace = find_trace(inspector, trace_id)
    if trace.status != "done":
        raise HttpError(409, f"This rollout is {trace.status}, not done.")
    return trace


def progress(trace: Trace) -> dict[str, Any]:
    """What the page needs to know of a trace beside its steps."""
    film = trace.film
    return {
        "id": trace.id,
        "run": trace.wish.run,
        "checkpoint": trace.wish.checkpoint,
        "deterministic": trace.wish.deterministic,
        "seed": trace.wish.seed,
        "steps": trace.wish.steps,
        "status": trace.status,
        "error": trace.error,
        "note": trace.note,
        "played": trace.played,
        "frames": len(trace.frames),
        "fps": trace.fps,
        "labels": {str(action): label for action, label in trace.labels.items()},
        "action_space": trace.action_space,
        "action_names": trace.action_names,
        "entry_names": trace.entry_names,
        "views": ["raw"] * bool(len(trace.frames)) + (["processed", "stacked"] if film is not None else []),
        "stack": None if film is None else film.count,
        "vectors": bool(trace.observations),
        "seconds": round(trace.seconds, 3),
        "bytes": trace.nbytes,
    }


def columns(trace: Trace, rows: slice = slice(None)) -> dict[str, Any]:
    """The step table: one list a column; null where the algorithm tells nothing."""
    kept, result = trace.steps[rows], trace.result
    assert result is not None
    keys = list(dict.fromkeys(key for step in trace.steps for key in step.info))
    return {
        "index": [step.index for step in kept],
        "episode": [step.episode for step in kept],
        "step": [step.step for step in kept],
        "frame": trace.first_frames[rows],
        "action": [_short(step.action) for step in kept],
        "label": [step.label for step in kept],
        "probabilities": [_short(step.probabilities) for step in kept],
        "mean": [_short(step.mean) for step in kept],
        "std": [_short(step.std) for step in kept],
        "greedy": [step.greedy for step in kept],
        "value": [_short(step.value) for step in kept],
        "reward": [_short(step.reward) for step in kept],
        "shaped_reward": [_short(step.shaped_reward) for step in kept],
        "cumulative_reward": _short(result.cumulative_reward[rows]),
        "mc_return": _short(result.mc_return[rows]),
        "advantage": None if result.advantage is None else _short(result.advantage[rows]),
        "end": [_end(trace, step) for step in kept],
        "info": {key: [_short(step.info.get(key)) for step in kept] for key in keys},
        "advantage_kind": result.advantage_kind,
        "gamma": result.gamma,
        "lambda": result.lam,
        "total": len(trace.steps),
    }


def table_text(trace: Trace) -> str:
    """The step table as CSV: one line a step, one column a probability."""
    table = columns(trace)
    plain = [
        *("index", "episode", "step", "action", "label", "greedy", "value", "reward", "shaped_reward"),
        *("cumulative_reward", "mc_return", "advantage", "end"),
    ]
    spread = {
        name: max((len(row) for row in table[name] if row), default=0) for name in ("probabilities", "mean", "std")
    }
    header = [*plain, *(f"{name}_{place}" for name, count in spread.items() for place in range(count))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, *(f"info_{_cell(key)}" for key in table["info"])])
    for row in range(table["total"]):
        cells = [_cell(table[name][row] if table[name] is not None else None) for name in plain]
        for name, count in spread.items():
            values = table[name][row] or []
            cells += [values[place] if place < len(values) else "" for place in range(count)]
        writer.writerow([*cells, *(_cell(values[row]) for values in table["info"].values())])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A value for a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, list):
        joined = " ".join(map(str, value))
        return spreadsheet_cell(joined) if any(isinstance(item, str) for item in value) else joined
    return spreadsheet_cell(value)


def _end(trace: Trace, step: TraceStep) -> str:
    if step.ended:
        return "terminated" if step.terminated else "truncated"
    return "cut" if step.index == len(trace.steps) - 1 else ""


def _short(value: Any) -> Any:
    """Numbers with eight significant digits: more than float32 has, and short enough to send many."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.8g}")
    return [_short(item) for item in value] if isinstance(value, list) else value


def _file_stem(trace: Trace) -> str:
    wish = trace.wish
    return f"{wish.run}-{wish.checkpoint}-seed{wish.seed}-{'deterministic' if wish.deterministic else 'stochastic'}"


def _place(text: str, count: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) >= count:
        raise HttpError(404, f"There are {count} of them, counted from 0.")
    return int(text)
