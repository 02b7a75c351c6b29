"""Games of the Play tab: each lives on the server, in memory, and is stepped by requests."""

from __future__ import annotations

import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import Any, Literal, TypeVar

import numpy as np

from gymlab.engine.agent import Agent
from gymlab.engine.beside_game import BesideGame
from gymlab.engine.dream_game import DreamGame
from gymlab.engine.playing import AgentPolicy, Game, Playing, likeliest
from gymlab.engine.recorded_game import RecordedGame
from gymlab.engine.run import Run
from gymlab.engine.saved_episodes import SPLITS, saved_episodes
from gymlab.engine.trace import entry_names
from gymlab.envs.keys import Controls, controls_of
from gymlab.inspector.frames import encoded, media_type
from gymlab.inspector.routes import HttpError

Where = Literal["real", "dream", "beside", "saved"]
MOST_SESSIONS = 4
"""Games that are open; the one that was left alone longest makes room."""
IDLE_SECONDS = 600.0
MOST_STEPS = 20_000
"""Of one game, over all its episodes."""
MOST_LISTED = 200
"""Saved episodes of each split that are listed."""
MOST_BARS = 18
HINTS = ("nothing", "together")
"""Rows of a table of keys that are no keys: what happens without one, and what several do."""

T = TypeVar("T")


@dataclass(frozen=True)
class PlayWish:
    """What is to be played, and by whom."""

    where: Where
    by_agent: bool
    """The agent decides; else whoever sits in front of the page."""
    seed: int
    deterministic: bool
    likeliest: bool
    """Dreams take what is likeliest, instead of drawing it."""


@dataclass
class PlaySession:
    """One game."""

    id: str
    wish: PlayWish
    game: Playing
    controls: Controls | None
    names: list[str]
    """Of the entries of a vector observation."""
    used: float = field(default_factory=time.monotonic)
    """When somebody last asked for it."""
    steps: int = 0

    def begin(self) -> None:
        """The next episode."""
        self.game.begin()

    def step(self, keys: frozenset[str]) -> bool:
        """One step: as the agent has decided, or by the keys that are down; False where nothing is to be done."""
        game = self.game
        if game.ending is not None:
            raise HttpError(409, "The episode is over. Begin another one.")
        if self.steps >= MOST_STEPS:
            raise HttpError(409, f"A game has at most {MOST_STEPS:,} steps. Start it again.")
        action = None
        if self.controls is not None:
            action = self.controls.action(keys, game.action)
            if action is None:
                return False
        game.step(action)
        self.steps += 1
        return True

    def facts(self) -> dict[str, Any]:
        """What does not change while it is played."""
        game, controls = self.game, self.controls
        told: dict[str, Any] = {
            "id": self.id,
            "where": self.wish.where,
            "by": "agent" if self.wish.by_agent else "you",
            "environment": game.config.env_id,
            "fps": game.fps,
            "buttons": [] if controls is None else _buttons(controls),
            "hints": {} if controls is None else {key: text for key, text in controls.table if key in HINTS},
            "waits": controls is not None and controls.waits,
            "image": isinstance(game, BesideGame) and game.is_image,
        }
        if isinstance(game, RecordedGame):
            told["episodes"] = _listed(game)
            told["counts"] = {split: sum(entry.split == split for entry in game.entries) for split in SPLITS}
        return told

    def state(self) -> dict[str, Any]:
        """Where the game is, with its pictures."""
        game = self.game
        told: dict[str, Any] = {
            "episode": game.episode,
            "step": game.steps,
            "reward": game.reward,
            "return": game.env_return,
            "ending": game.ending,
            "place": game.place,
            "action": None if game.action is None else game.text_of(game.action),
            "next": self._decision(),
        }
        if isinstance(game, RecordedGame):
            told["length"] = game.length
        if isinstance(game, BesideGame):
            return told | self._beside(game)
        return told | {"frame": picture(game.frame())}

    def _decision(self) -> dict[str, Any] | None:
        game, decision = self.game, self.game.decision
        if decision is None:
            return None
        told: dict[str, Any] = {"action": game.text_of(decision.action), "value": decision.value, "bars": []}
        if decision.probabilities is not None and len(decision.probabilities) == len(game.labels):
            told["bars"] = [
                {"label": game.labels[index], "probability": probability}
                for index, probability in likeliest(decision.probabilities, MOST_BARS)
            ]
        return told

    def _beside(self, game: BesideGame) -> dict[str, Any]:
        real, dreamt = game.frames()
        told: dict[str, Any] = {
            "frame": picture(real),
            "dream": picture(dreamt),
            "difference": None,
            "dream_reward": game.dream_reward,
            "dream_return": game.dream_return,
            "dream_ended": game.dream_ended,
            "error": game.errors[-1] if game.errors else None,
            "distance": game.distance,
            "apart": game.apart,
            "worst": None,
        }
        if game.is_image:
            told["difference"] = picture(heat(real, dreamt))
        elif game.errors and isinstance(game.dreamt, np.ndarray) and game.dreamt.ndim:
            told["worst"] = self._worst(game)
        return told

    def _worst(self, game: BesideGame) -> dict[str, Any]:
        """The entry of a vector in which the dream is furthest off."""
        apart = game.difference().ravel()
        place = int(np.abs(apart).argmax())
        name = self.names[place] if place < len(self.names) else f"entry {place}"
        dreamt = float(game.dreamt.ravel()[place])
        return {"name": name, "dream": dreamt, "real": dreamt - float(apart[place])}


class PlaySessions:
    """The games of one server. One thread plays them all, so that an emulator and a GL context have one owner."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: OrderedDict[str, PlaySession] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "gymlab-play")
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._open)

    def do(self, work: Callable[[], T]) -> T:
        """Have the playing thread do something, and wait for it."""
        return self._thread.submit(work).result()

    def start(self, run: Run, agent: Agent, wish: PlayWish) -> PlaySession:
        """Open a game at its first episode; called by the playing thread."""
        game = _game(run, agent, wish)
        with ExitStack() as when_it_fails:
            when_it_fails.callback(game.close)
            controls = controls_of(game.env.action_space, game.labels, game.config.env_id) if game.by_hand else None
            count = int(np.prod(game.env.observation_space.shape or (1,)))
            session = PlaySession(secrets.token_hex(6), wish, game, controls, entry_names(agent.config, count))
            session.begin()
            when_it_fails.pop_all()
        with self._lock:
            self._open[session.id] = session
            spare = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - MOST_SESSIONS)]
            if self._timer is None:
                self._watch()
        for old in spare:
            old.game.close()
        return session

    def use(self, session_id: str, work: Callable[[PlaySession], T]) -> T:
        """Have the playing thread do something with a game; 404 when there is no such game any more."""
        with self._lock:
            session = self._open.get(session_id)
            if session is not None:
                session.used = time.monotonic()
                self._open.move_to_end(session_id)
        if session is None:
            raise HttpError(404, "This game is no longer open: games that are left alone are closed. Start it again.")
        return self.do(lambda: work(session))

    def close(self, session_id: str) -> None:
        """Close a game, if it is open."""
        with self._lock:
            session = self._open.pop(session_id, None)
        if session is not None:
            self.do(session.game.close)

    def close_idle(self, now: float | None = None) -> None:
        """Close the games that nobody has asked for in a while."""
        moment = time.monotonic() if now is None else now
        with self._lock:
            idle = [session.id for session in self._open.values() if moment - session.used > IDLE_SECONDS]
        for session_id in idle:
            self.close(session_id)

    def _watch(self) -> None:
        """Look for idle games now and then, as long as there is any."""

        def look() -> None:
            self.close_idle()
            with self._lock:
                self._timer = None
                if self._open:
                    self._watch()

        self._timer = Timer(IDLE_SECONDS / 4, look)
        self._timer.daemon = True
        self._timer.start()


def _game(run: Run, agent: Agent, wish: PlayWish) -> Playing:
    game: Playing
    if wish.where == "saved":
        return RecordedGame(agent.config, saved_episodes(run, agent), enlarge=False)
    if wish.where == "dream":
        game = DreamGame(agent, seed=wish.seed, render=True, likeliest=wish.likeliest, enlarge=False)
    elif wish.where == "beside":
        game = BesideGame(agent, seed=wish.seed, likeliest=wish.likeliest, enlarge=False)
    else:
        game = Game(agent.config, seed=wish.seed, render=True, agent=agent)
    if wish.by_agent:
        game.policy = AgentPolicy(agent, seed=wish.seed, deterministic=wish.deterministic)
    return game


def _buttons(controls: Controls) -> list[dict[str, Any]]:
    """What can be pressed on the page: a key and what it does."""
    table = [(keys.split(" or "), text) for keys, text in controls.table]
    return [{"keys": keys, "text": text} for keys, text in table if keys[0] in controls.keys]


def _listed(game: RecordedGame) -> list[dict[str, Any]]:
    """The newest saved episodes of each split, with their places in the list of all."""
    places = {
        split: [i for i, entry in enumerate(game.entries) if entry.split == split][:MOST_LISTED] for split in SPLITS
    }
    return [
        {
            "index": index,
            "split": split,
            "name": game.entries[index].name,
            "return": game.entries[index].env_return,
            "length": game.entries[index].length,
            "ending": game.entries[index].ending,
        }
        for split in SPLITS
        for index in places[split]
    ]


def picture(pixels: np.ndarray) -> str:
    """A picture as an address that holds it."""
    blob = encoded(pixels)
    return f"data:{media_type(blob)};base64,{base64.b64encode(blob).decode()}"


def heat(real: np.ndarray, dreamt: np.ndarray) -> np.ndarray:
    """Where two pictures differ, and how much: black, red, yellow, white."""
    difference = np.abs(real.astype(np.int16) - dreamt).max(-1)
    # Each third of the range lights up one more colour.
    shares = [np.clip(3 * difference - 255 * third, 0, 255) for third in range(3)]
    return np.stack(shares, -1).astype(np.uint8)
