"""Play: the agent or a person in the real environment, in the dream of a world model, or in both side by side; and saved episodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, cast, get_args

from gymlab.engine.recorded_game import RecordedGame
from gymlab.engine.run import Run
from gymlab.inspector.episodes import LARGEST_SEED
from gymlab.inspector.loading import read_agent
from gymlab.inspector.play_sessions import PlaySession, PlaySessions, PlayWish, Where
from gymlab.inspector.routes import Body, HttpError, Inspector, Request, Response, json_response, route

SESSION_ID = re.compile(r"[0-9a-f]{12}")
WISH = ("run", "checkpoint", "where", "by", "seed", "deterministic", "likeliest")
MOST_KEYS = 16
LONGEST_KEY = 16


@route("POST", "/api/play")
def start(request: Request) -> Response:
    """Open a game: {run, checkpoint, where, by, seed, deterministic, likeliest}."""
    body = Body(request.body, WISH)
    run = request.run(body.text("run", 128))
    saved = read_agent(request.inspector, run, body.text("checkpoint", 64, "best"))
    wish = PlayWish(
        where=cast("Where", body.choice("where", get_args(Where))),
        by_agent=body.choice("by", ("agent", "you")) == "agent",
        seed=body.integer("seed", 0, low=0, high=LARGEST_SEED),
        deterministic=body.flag("deterministic", True),
        likeliest=body.flag("likeliest", False),
    )
    sessions = sessions_of(request.inspector)

    def open_game() -> dict[str, Any]:
        session = sessions.start(Run(run.dir), saved.build(), wish)
        return session.facts() | {"state": session.state()}

    return json_response(sessions.do(open_game), 201)


@route("POST", "/api/play/{session}/step")
def step(request: Request, session: str) -> Response:
    """One step, by the agent or with the keys that are down; where they mean nothing, nothing happens."""
    keys = Body(request.body, ("keys",)).texts("keys", most=MOST_KEYS, longest=LONGEST_KEY)

    def take(game: PlaySession) -> dict[str, Any]:
        began = time.perf_counter()
        moved = game.step(frozenset(keys))
        return game.state() | {"moved": moved, "milliseconds": 1000 * (time.perf_counter() - began)}

    return _used(request, session, take)


@route("POST", "/api/play/{session}/begin")
def begin(request: Request, session: str) -> Response:
    """The next episode."""

    def again(game: PlaySession) -> dict[str, Any]:
        game.begin()
        return game.state()

    return _used(request, session, again)


@route("POST", "/api/play/{session}/go")
def go(request: Request, session: str) -> Response:
    """To an episode of those that are saved, or to a step of the one that is open: {episode} or {step}."""
    body = Body(request.body, ("episode", "step"))

    def move(found: PlaySession) -> dict[str, Any]:
        game = found.game
        if not isinstance(game, RecordedGame):
            raise HttpError(400, "One can go to a step of what was saved alone.")
        if "episode" in body:
            game.choose(body.integer("episode", low=0, high=len(game.entries) - 1))
        if "step" in body:
            game.go(body.integer("step", low=0, high=game.length))
        return found.state()

    return _used(request, session, move)


@route("POST", "/api/play/{session}/close")
def close(request: Request, session: str) -> Response:
    """Close a game."""
    sessions_of(request.inspector).close(session)
    return json_response({})


def sessions_of(inspector: Inspector) -> PlaySessions:
    """The games of a server."""
    return inspector.shared("play", PlaySessions)


def _used(request: Request, session: str, work: Callable[[PlaySession], dict[str, Any]]) -> Response:
    sessions = sessions_of(request.inspector)
    sessions.close_idle()
    return json_response(sessions.use(session if SESSION_ID.fullmatch(session) else "", work))
