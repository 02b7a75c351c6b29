"""What the inspector's handlers are made of: routes, requests whose values are typed and bounded, and responses.

    @route("GET", "/api/runs/{run}/curves", query=("metric", "points"))
    def curves(request: Request, run: str) -> Response:
        points = request.integer("points", default=400, low=10, high=2000)
        return json_response({"run": request.run(run).id, "points": points})

`{run}` has been found in the list of runs when a handler is called; no other path from the browser reaches the disk.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from gymlab.engine.links import links_out
from gymlab.engine.run import Run, run_directories

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
FILES_READ = (
    "config.json",
    "config.start.json",
    "run.json",
    "metrics.csv",
    "alerts.json",
    "changes.jsonl",
    "checkpoints",
    "replay",
    "videos",
)
"""What handlers read of a run. None of them may be a link that leads out of it."""

T = TypeVar("T")


class HttpError(Exception):
    """A request that is refused: the status, and a sentence for the person in front of the page."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Inspector:
    """What the requests of one server share."""

    def __init__(self, runs_dir: Path, plugins: Sequence[str] = ()) -> None:
        self.runs_dir = runs_dir
        self.plugins = tuple(plugins)
        """Modules that the user gave on the command line; handlers that load agents hand them on."""
        self.token = secrets.token_urlsafe(24)
        """Known to the page alone; a request that changes anything carries it."""
        self.initial: str | None = None
        """Run that the page selects when its address names none."""
        self.env_kwargs: Sequence[str] = ()
        """Arguments of that run's environment that the user gave on the command line, `key=value`."""
        self._shared: dict[str, Any] = {}
        self._lock = Lock()

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """An object that lives as long as the server, made when it is first asked for: caches of the handlers."""
        with self._lock:
            if name not in self._shared:
                self._shared[name] = make()
            found: T = self._shared[name]
            return found

    def run_names(self) -> list[str]:
        """Names of the directories that may be runs: real ones below the runs directory, no links."""
        return [path.name for path in run_directories(self.runs_dir) if RUN_NAME.fullmatch(path.name)]

    def run(self, name: str) -> Run:
        """The run of that name in the list; 404 for any other, and 403 for one whose files lead elsewhere."""
        if name not in self.run_names():
            raise HttpError(
                404, f"There is no run {name[:80]!r} in the list. It may have been removed: reload the page."
            )
        run = Run(self.runs_dir / name)
        if leading_out := links_out(run.dir, FILES_READ):
            raise HttpError(403, f"{', '.join(leading_out)} of {name} leads out of the run. It is not read.")
        return run


@dataclass(frozen=True)
class Request:
    """One request, after its path and its origin were judged."""

    inspector: Inspector
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Any = None
    """What a POST sent, read from JSON."""

    def run(self, name: str) -> Run:
        """The run of that name in the list of runs."""
        return self.inspector.run(name)

    def texts(self, name: str, *, most: int = 64, longest: int = 200) -> list[str]:
        """All values of a name that may be given more than once."""
        values = list(self.query.get(name, ()))
        if len(values) > most or any(len(value) > longest for value in values):
            raise HttpError(400, f"{name}: at most {most} values of {longest} characters.")
        return values

    def text(self, name: str, default: str | None = None, *, choices: Sequence[str] = ()) -> str:
        """One value; one of `choices` where there are any."""
        values = self.texts(name, most=1)
        value = values[0] if values else default
        if value is None:
            raise HttpError(400, f"{name} is missing.")
        if choices and value not in choices:
            raise HttpError(400, f"{name} is one of {', '.join(choices)}.")
        return value

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self.text(name, None if default is None else str(default))
        if not re.fullmatch(r"-?\d{1,15}", text) or not low <= int(text) <= high:
            raise HttpError(400, f"{name} is a whole number from {low} to {high}.")
        return int(text)

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        text = self.text(name, None if name in self.query else repr(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if name in self.query and not math.isfinite(value):
            raise HttpError(400, f"{name} is a number.")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """0 or 1."""
        return self.text(name, str(int(default)), choices=("0", "1")) == "1"


class Body:
    """What a POST sent as JSON: fields that are known, typed and bounded."""

    def __init__(self, sent: Any, known: Sequence[str]) -> None:
        if not isinstance(sent, dict) or set(sent) - set(known):
            raise HttpError(400, f"A request has {', '.join(known)}, and nothing else.")
        self.sent = sent

    def __contains__(self, name: str) -> bool:
        return name in self.sent

    def text(self, name: str, longest: int, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self.sent.get(name, default)
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise HttpError(400, f"{name} is a text of at most {longest} characters.")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of the choices; the first unless told."""
        value = self.sent.get(name, choices[0])
        if not isinstance(value, str) or value not in choices:
            raise HttpError(400, f"{name} is one of {', '.join(choices)}.")
        return value

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.sent.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise HttpError(400, f"{name} is a whole number from {low} to {high}.")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.sent.get(name, default)
        if not isinstance(value, bool):
            raise HttpError(400, f"{name} is true or false.")
        return value

    def texts(self, name: str, *, most: int, longest: int) -> list[str]:
        """A list of texts, empty unless given."""
        values = self.sent.get(name, [])
        fitting = isinstance(values, list) and len(values) <= most
        if not fitting or not all(isinstance(value, str) and 0 < len(value) <= longest for value in values):
            raise HttpError(400, f"{name} are at most {most} texts of {longest} characters.")
        return values


@dataclass(frozen=True)
class Response:
    """What goes back to the browser."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(value: Any, status: int = 200) -> Response:
    """Strict JSON; what is not finite becomes null."""
    return Response(json.dumps(finite(value), allow_nan=False, separators=(",", ":")).encode(), status=status)


def download(body: bytes, content_type: str, name: str) -> Response:
    """A file to keep, under a plain name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "file"
    return Response(body, content_type, headers={"Content-Disposition": f'attachment; filename="{plain}"'})


def finite(value: Any) -> Any:
    """A value with null in place of NaN and infinity, arrays as lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


Handler = Callable[..., Response]


@dataclass(frozen=True)
class Route:
    """A method and a pattern of paths, with the function that answers."""

    method: str
    pattern: re.Pattern[str]
    query: frozenset[str]
    handler: Handler


ROUTES: list[Route] = []


def route(method: str, path: str, *, query: Sequence[str] = ()) -> Callable[[Handler], Handler]:
    """Register a function for a path; `{name}` stands for one segment, handed over as an argument of that name."""
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))

    def register(handler: Handler) -> Handler:
        ROUTES.append(Route(method, pattern, frozenset(query), handler))
        return handler

    return register


def answer(method: str, path: str, request: Request) -> Response:
    """Find the handler of a decoded path, check what it is given, call it."""
    methods = set()
    for candidate in ROUTES:
        match = candidate.pattern.fullmatch(path)
        if match is None:
            continue
        methods.add(candidate.method)
        if candidate.method != method:
            continue
        unknown = set(request.query) - candidate.query
        if unknown:
            raise HttpError(
                400,
                f"{', '.join(sorted(unknown))[:80]}: unknown here. Known: {', '.join(sorted(candidate.query)) or 'nothing'}.",
            )
        arguments = match.groupdict()
        if "run" in arguments:
            request.run(arguments["run"])
        return candidate.handler(request, **arguments)
    if methods:
        raise HttpError(405, f"{method} is not for this address.")
    raise HttpError(404, "There is nothing at this address.")
