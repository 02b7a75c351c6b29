"""The list of runs: status, result and a small curve of each, read anew only where a file has changed."""

from __future__ import annotations

from gymlab.engine.registry import read_entry
from gymlab.engine.run import Run
from gymlab.inspector.routes import Request, Response, json_response, route


@route("GET", "/api/runs", query=("seen",))
def runs(request: Request) -> Response:
    """Every run, by name."""
    found = []
    for name in request.inspector.run_names():
        entry = read_entry(Run(request.inspector.runs_dir / name))
        if entry is not None:
            found.append(
                {"id": entry.id, "status": entry.status, "reason": entry.reason, "experiment": entry.experiment}
            )
    return json_response(
        {"runs": found, "initial": request.inspector.initial, "directory": str(request.inspector.runs_dir)}
    )
