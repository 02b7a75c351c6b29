"""World model: what a workflow with `imagine` expects to see, beside what was there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from gymlab.api import load_plugins
from gymlab.config import discover
from gymlab.engine.train import stored_config
from gymlab.engine.workflow import Dream, PlanningAgent, Recording, WorldModel, find_workflow, workflow_names
from gymlab.inspector.episodes import FOR_EVER, finished
from gymlab.inspector.frames import png
from gymlab.inspector.loading import agents_of
from gymlab.inspector.routes import HttpError, Inspector, Request, Response, json_response, route
from gymlab.inspector.traces import Trace

MOST_HORIZON = 200
MOST_DREAMS = 16
KINDS = ("truth", "reconstruction", "dream")


@dataclass(frozen=True)
class Shown:
    """A dream as the page shows it."""

    answer: dict[str, Any]
    sheet: bytes | None
    """A picture of a row a kind (truth, reconstruction, dream, others) and a column a step; None for vectors."""


class Dreams:
    """The dreams that were looked at last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int, int], Shown] = OrderedDict()

    def get(self, key: tuple[str, int, int]) -> Shown | None:
        """A dream that was dreamt before."""
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: tuple[str, int, int], shown: Shown) -> Shown:
        """Remember a dream, and forget the oldest."""
        with self._lock:
            self._kept[key] = shown
            while len(self._kept) > MOST_DREAMS:
                self._kept.popitem(last=False)
        return shown


@route("GET", "/api/runs/{run}/world_model")
def world_model(request: Request, run: str) -> Response:
    """Whether a run's algorithm dreams or plans in a world model, and which algorithms do."""
    load_plugins(request.inspector.plugins)
    algorithm = stored_config(request.run(run)).algo_id
    able = {name: {"dreams": has_world_model(name), "plans": makes_plans(name)} for name in workflow_names()}
    others = [name for name, ways in able.items() if any(ways.values())]
    dreaming = [name for name, ways in able.items() if ways["dreams"]]
    told = {"able": others, "dreaming": dreaming, "experiment": _dreaming_experiment(dreaming)}
    return json_response({"algorithm": algorithm, **able[algorithm], **told})


def _dreaming_experiment(dreaming: Collection[str]) -> str | None:
    """A shipped experiment that learns a world model in minutes: not every such algorithm can learn any environment."""
    (cartpole,) = (entry for entry in discover(None) if entry.name == "CartPole-v1")
    return next((f"{cartpole.name}:{one.name}" for one in cartpole.variants if one.algo_id in dreaming), None)


@route("GET", "/api/traces/{trace}/dream", query=("start", "horizon"))
def dream(request: Request, trace: str) -> Response:
    """Truth, reconstruction and dream after a step of a trace, with their errors."""
    return json_response(_dreamt(request, trace).answer)


@route("GET", "/api/traces/{trace}/dream.png", query=("start", "horizon"))
def dream_picture(request: Request, trace: str) -> Response:
    """The same as one picture, for observations that are images: a row a kind, a column a step."""
    shown = _dreamt(request, trace)
    if shown.sheet is None:
        raise HttpError(404, "Observations of this run are no images.")
    return Response(shown.sheet, "image/png", headers=FOR_EVER)


def has_world_model(algorithm: str) -> bool:
    """Whether a workflow offers `imagine`."""
    return issubclass(find_workflow(algorithm), WorldModel)


def makes_plans(algorithm: str) -> bool:
    """Whether a workflow offers `plans`."""
    return issubclass(find_workflow(algorithm), PlanningAgent)


def _dreamt(request: Request, trace_id: str) -> Shown:
    trace = finished(request.inspector, trace_id)
    count = len(trace.steps)
    start = request.integer("start", 0, low=0, high=max(0, count - 1))
    wanted = request.integer("horizon", 30, low=1, high=MOST_HORIZON)
    horizon = min(wanted, steps_left(trace, start))
    if horizon < 1:
        raise HttpError(400, "The episode ends with this step: there is nothing after it to dream of.")
    dreams = request.inspector.shared("dreams", Dreams)
    key = (trace_id, start, horizon)
    return dreams.get(key) or dreams.keep(key, _dream(request.inspector, trace, start, horizon))


def _dream(inspector: Inspector, trace: Trace, start: int, horizon: int) -> Shown:
    first = start - trace.steps[start].step
    recording = recorded(trace, first, start + horizon + 1)
    with agents_of(inspector).use(inspector.run(trace.wish.run), trace.wish.checkpoint) as agent:
        workflow = agent.workflow
        if not isinstance(workflow, WorldModel):
            raise HttpError(400, f"{agent.config.algo_id} has no world model.")
        found = workflow.imagine(recording, start - first, horizon)
    kinds = by_kind(found)
    for kind, rows in kinds.items():
        if rows.shape != (horizon, *recording.observations.shape[1:]):
            raise HttpError(
                500,
                f"imagine gave a {kind} of shape {rows.shape} for {horizon} steps of {recording.observations.shape[1:]}.",
            )
    answer: dict[str, Any] = {
        "start": start,
        "horizon": horizon,
        "kinds": list(kinds),
        "reconstruction_error": found.reconstruction_error,
        "dream_error": found.dream_error,
    }
    if trace.film is None:
        return Shown(answer | {kind: rows.reshape(horizon, -1) for kind, rows in kinds.items()}, None)
    # As a share of the full range, so that the error of a grey and of a colour picture mean the same.
    answer |= {name: answer[name] / 255 for name in ("reconstruction_error", "dream_error")}
    answer |= {"height": trace.film.height, "width": trace.film.width}
    return Shown(answer, png(sheet(trace, found)))


def steps_left(trace: Trace, start: int) -> int:
    """How many observations follow a step in its episode."""
    episode = trace.steps[start].episode
    last = max(step.index for step in trace.steps if step.episode == episode)
    return last - start


def recorded(trace: Trace, first: int, beyond: int) -> Recording:
    """A part of a trace as a world model takes it."""
    steps = trace.steps[first:beyond]
    return Recording(
        np.stack([trace.observation(step.index) for step in steps]),
        np.stack([np.asarray(step.action) for step in steps]),
        np.array([step.step == 0 for step in steps]),
    )


def by_kind(found: Dream) -> dict[str, np.ndarray]:
    """What a dream shows by name, in the order of rows: truth, reconstruction, dream and whatever else was dreamt."""
    return {**{kind: getattr(found, kind) for kind in KINDS}, **found.others}


def sheet(trace: Trace, found: Dream) -> np.ndarray:
    """[kinds * H, steps * W] or the same in colours: the newest frame of every observation."""
    film = trace.film
    assert film is not None
    rows = []
    for values in by_kind(found).values():
        images = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        rows.append(np.concatenate([film.newest(film.strip(image)) for image in images], axis=1))
    return np.concatenate(rows, axis=0)
