"""Hyperparameters of a run that trains, changed through the same door as `gymlab set`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from gymlab.engine.changes import shown
from gymlab.engine.run import Run, runs_directory
from gymlab.errors import ConfigError
from gymlab.inspector.routes import HttpError, Request, Response, json_response, route

NAME = re.compile(r"[a-z][a-z0-9_.]{0,63}")
LONGEST_VALUE = 300
MOST_VALUES = 40


@route("GET", "/api/runs/{run}/hyperparameters")
def hyperparameters(request: Request, run: str) -> Response:
    """What can change, its value now, the one that is waited for, and what a value may be."""
    found = request.run(run)
    return json_response({"status": found.status, "hyperparameters": _tunables(request, found)})


@route("POST", "/api/runs/{run}/hyperparameters")
def set_values(request: Request, run: str) -> Response:
    """Ask a run that trains for other values, written as on the command line: {"values": {"policy_lr": "1e-4"}}."""
    from gymlab.api import set_hyperparameters

    found = request.run(run)
    given = _values(request.body)
    if found.status != "running":
        first = shlex.join(f"{name}={value}" for name, value in given.items())
        elsewhere = (
            ""
            if runs_directory() == request.inspector.runs_dir
            else f" --runs-dir {shlex.quote(str(request.inspector.runs_dir))}"
        )
        raise HttpError(
            409,
            f"{run} does not train: it is {found.status}. To go on with another value: gymlab train --resume {run} {first}{elsewhere}",
        )
    overrides = [f"{name}={value}" for name, value in given.items()]
    inspector = request.inspector
    try:
        changes = set_hyperparameters(run, runs_dir=inspector.runs_dir, overrides=overrides, plugins=inspector.plugins)
    except ConfigError as error:
        # An answer, not a failure: somebody typed a value that the schema refuses, and is told why.
        return json_response({"refused": str(error), "changed": [], "hyperparameters": _tunables(request, found)})
    changed = [f"{change.name}: {shown(change.before)} → {shown(change.to)}" for change in changes]
    return json_response({"changed": changed, "hyperparameters": _tunables(request, found)})


def _values(body: Any) -> dict[str, str]:
    """The values that a page sent, as text by name."""
    values = body.get("values") if isinstance(body, dict) else None
    if not isinstance(values, dict) or not 0 < len(values) <= MOST_VALUES:
        raise HttpError(400, 'Send {"values": {"policy_lr": "1e-4"}}: at least one name with its new value.')
    for name, value in values.items():
        if not NAME.fullmatch(name):
            raise HttpError(400, f"{name[:80]!r} is no name of a hyperparameter.")
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_VALUE or not value.isprintable():
            raise HttpError(400, f"{name}: a value is text of 1 to {LONGEST_VALUE} characters.")
    return values


def _tunables(request: Request, run: Run) -> list[dict[str, Any]]:
    from gymlab.api import get_hyperparameters
    from gymlab.config.field_types import describe_type
    from gymlab.engine.train import stored_config

    inspector = request.inspector
    found = get_hyperparameters(run.id, runs_dir=inspector.runs_dir, plugins=inspector.plugins)
    fields = type(stored_config(run)).model_fields
    return [
        {
            "name": tunable.name,
            "example": written(tunable.value),
            "value": shown(tunable.value),
            "wanted": None if tunable.wanted == tunable.value else shown(tunable.wanted),
            "about": tunable.description,
            "takes": describe_type(fields[tunable.name].annotation, fields[tunable.name].metadata),
        }
        for tunable in found
    ]


def written(value: Any) -> str:
    """A value as it could be typed: a number or null; a schedule in short, to say what it is."""
    return shown(value) if isinstance(value, dict) else "null" if value is None else f"{value!r}"
