"""Plans: what a workflow with `plans` considered at a step, and how far its model follows the world."""

from __future__ import annotations

from typing import Any

import numpy as np

from gymlab.engine.workflow import PlanningAgent
from gymlab.inspector.dreams import MOST_HORIZON, recorded, steps_left
from gymlab.inspector.episodes import finished
from gymlab.inspector.loading import agents_of
from gymlab.inspector.routes import HttpError, Request, Response, json_response, route

MOST_SEQUENCES = 32
"""The best ones, that are drawn."""


@route("GET", "/api/traces/{trace}/plans", query=("start", "horizon"))
def plans(request: Request, trace: str) -> Response:
    """The best sequences of actions at a step of a trace, with what the model expects of them, and the drift of its latent."""
    played = finished(request.inspector, trace)
    start = request.integer("start", 0, low=0, high=max(0, len(played.steps) - 1))
    horizon = min(request.integer("horizon", 30, low=1, high=MOST_HORIZON), steps_left(played, start))
    if horizon < 1:
        raise HttpError(400, "The episode ends with this step: there is nothing after it to plan for.")
    first = start - played.steps[start].step
    recording = recorded(played, first, start + horizon + 1)
    run = request.inspector.run(played.wish.run)
    with agents_of(request.inspector).use(run, played.wish.checkpoint) as agent:
        workflow = agent.workflow
        if not isinstance(workflow, PlanningAgent):
            raise HttpError(400, f"{agent.config.algo_id} plans nothing.")
        found = workflow.plans(recording, start - first, horizon)
    answer: dict[str, Any] = {
        "start": start,
        "horizon": horizon,
        # [sequence, step, dimension]; a choice is a dimension of whole numbers.
        "actions": found.actions[:MOST_SEQUENCES].reshape(*found.actions[:MOST_SEQUENCES].shape[:2], -1),
        "choices": bool(np.issubdtype(found.actions.dtype, np.integer)),
        "returns": np.cumsum(found.rewards[:MOST_SEQUENCES], axis=1),
        "values": found.values[:MOST_SEQUENCES],
        "weights": found.weights[:MOST_SEQUENCES],
        "drift": found.drift,
        "taken": np.asarray(recording.actions[start - first]).reshape(-1),
    }
    return json_response(answer)
