"""Episodes played for the page: each once, in the background, one after the other, and kept as long as there is room."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from gymlab.engine.agent import Agent
from gymlab.engine.trace import Outcome, Player, TraceStep, component_names, entry_names, outcome
from gymlab.envs.spaces import space_to_json
from gymlab.envs.vector import is_image_space
from gymlab.errors import GymlabError
from gymlab.inspector.frames import Film, Frames

logger = logging.getLogger(__name__)

MOST_TRACES = 12
MOST_BYTES = 768 * 2**20
"""Memory of all traces together; the oldest are dropped beyond it."""
WIDEST_VECTOR = 1024
"""Vector observations with more entries than this are not kept."""


@dataclass(frozen=True)
class Wish:
    """What is to be played; equal wishes have one trace."""

    run: str
    checkpoint: str
    saved: float
    """When the checkpoint was written: a run may write another one under the same name."""
    deterministic: bool
    seed: int
    steps: int


@dataclass
class Trace:
    """One playing: its progress while it goes on, and all that it showed."""

    id: str
    wish: Wish
    status: str = "waiting"
    """waiting, playing, done, cancelled or failed."""
    error: str = ""
    note: str = ""
    """What is to be said beside the result, such as why there are no pictures."""
    played: int = 0
    seconds: float = 0.0
    fps: float = 30.0
    labels: dict[int, str] = field(default_factory=dict)
    action_space: dict[str, Any] = field(default_factory=dict)
    action_names: list[str] = field(default_factory=list)
    """Names of the dimensions of a continuous action."""
    stack: int = 1
    """Frames of which an observation is made."""
    entry_names: list[str] = field(default_factory=list)
    """Names of the entries of a vector observation."""
    frames: Frames = field(default_factory=Frames)
    first_frames: list[int] = field(default_factory=list)
    """Number of the frame that each step acts on; the frame after it is the end of its episode, if that ended there."""
    film: Film | None = None
    strips: Frames = field(default_factory=lambda: Frames(lossless=True))
    """Image observations, one for each frame."""
    observations: list[np.ndarray] = field(default_factory=list)
    """Vector observations, one for each step; empty for images and for vectors that are too wide."""
    processed: list[np.ndarray] = field(default_factory=list)
    steps: list[TraceStep] = field(default_factory=list)
    """Without their pictures and observations."""
    result: Outcome | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def nbytes(self) -> int:
        """Memory of pictures and observations."""
        vectors = sum(array.nbytes for array in (*self.observations[:1], *self.processed[:1])) * len(self.observations)
        return self.frames.nbytes + self.strips.nbytes + vectors

    def observation(self, step: int) -> np.ndarray:
        """What the agent saw at a step, exactly."""
        if self.film is not None:
            return self.film.observation(self.strips.pixels(self.first_frames[step]))
        if not self.observations:
            raise GymlabError(f"Observations of more than {WIDEST_VECTOR} numbers are not kept.")
        return self.observations[step]


class Traces:
    """The traces of one server. A single thread plays them, so that an emulator and a GL context have one owner."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._queue: SimpleQueue[tuple[Trace, Callable[[], Agent]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def get(self, trace_id: str) -> Trace | None:
        """The trace of that id, if it is still kept."""
        with self._lock:
            return self._traces.get(trace_id)

    def start(self, wish: Wish, load: Callable[[], Agent]) -> Trace:
        """The trace of a wish: the one there is, or a new one that is played as soon as those before it are over."""
        with self._lock:
            for trace in self._traces.values():
                if trace.wish == wish and trace.status in ("waiting", "playing", "done"):
                    self._traces.move_to_end(trace.id)
                    return trace
            trace = Trace(secrets.token_hex(6), wish)
            self._traces[trace.id] = trace
            if self._thread is None:
                self._thread = threading.Thread(target=self._play_all, name="gymlab-traces", daemon=True)
                self._thread.start()
        self._queue.put((trace, load))
        return trace

    def _play_all(self) -> None:
        while True:
            trace, load = self._queue.get()
            if not trace.cancelled.is_set():
                self._play(trace, load)
            self._make_room()

    def _play(self, trace: Trace, load: Callable[[], Agent]) -> None:
        trace.status = "playing"
        began = time.monotonic()
        try:
            play(trace, load())
            trace.status = "cancelled" if trace.cancelled.is_set() else "done"
        except GymlabError as error:
            trace.status, trace.error = "failed", str(error)
        except Exception as error:  # An environment may raise anything.
            logger.error("An episode of %s could not be played.", trace.wish.run, exc_info=True)
            trace.status, trace.error = "failed", f"The environment failed: {type(error).__name__}: {error}"
        trace.seconds = time.monotonic() - began

    def _make_room(self) -> None:
        with self._lock:
            kept = [trace for trace in self._traces.values() if trace.status not in ("waiting", "playing")]
            total = sum(trace.nbytes for trace in kept)
            while len(kept) > 1 and (len(kept) > MOST_TRACES or total > MOST_BYTES):
                oldest = kept.pop(0)
                total -= oldest.nbytes
                del self._traces[oldest.id]


def play(trace: Trace, agent: Agent) -> None:
    """Play a wish into its trace."""
    wish = trace.wish
    with _player(trace, agent) as player:
        space = player.env.observation_space
        is_image = is_image_space(space)
        trace.stack = agent.config.frame_stack
        trace.fps, trace.labels = player.fps, player.labels
        trace.action_space = space_to_json(player.env.action_space)
        trace.action_names = component_names(agent.config, "action_space")
        trace.entry_names = entry_names(agent.config, int(np.prod(space.shape or (1,))))
        if is_image:
            assert space.shape is not None
            trace.film = Film(space.shape, agent.config.frame_stack)
        keep_vectors = not is_image and int(np.prod(space.shape or (1,))) <= WIDEST_VECTOR
        for step in player.play(steps=wish.steps):
            _keep(trace, step, keep_vectors)
            if trace.cancelled.is_set():
                return
    trace.result = outcome(agent, trace.steps)


def _player(trace: Trace, agent: Agent) -> Player:
    options = {"seed": trace.wish.seed, "deterministic": trace.wish.deterministic}
    try:
        return Player(agent, **options)  # type: ignore[arg-type]
    except GymlabError as error:
        # An environment that draws nothing can still be played.
        player = Player(agent, **options, render=False)  # type: ignore[arg-type]
        trace.note = f"No pictures: {error}"
        return player


def _keep(trace: Trace, step: TraceStep, keep_vectors: bool) -> None:
    trace.first_frames.append(max(len(trace.frames), len(trace.strips)))
    for frame, observation in ((step.frame, step.observation), (step.final_frame, step.final_observation)):
        if frame is not None:
            trace.frames.add(frame)
        if observation is not None and trace.film is not None:
            trace.strips.add(trace.film.strip(observation))
    if keep_vectors:
        trace.observations.append(step.observation)
        trace.processed.append(step.processed)
    trace.steps.append(slim(step))
    trace.played += 1


def slim(step: TraceStep) -> TraceStep:
    """A step without what is kept elsewhere, compressed."""
    empty = np.zeros(0)
    return replace(step, observation=empty, processed=empty, frame=None, final_frame=None, final_observation=None)
