"""Videos of the agent as it learns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback
from gymlab.engine.evaluation import record_episode
from gymlab.errors import GymlabError
from gymlab.metrics.video import VideoWriter

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator

FINAL_VIDEO = "final.mp4"
FILM_FPS = 4
"""Frames a second of what a workflow shows beside its episodes."""


class Videos(Callback):
    """Records one evaluation episode every few epochs (none: only at the end) for the run, the trackers and the checkpoint."""

    def __init__(self, directory: Path, every_epochs: int | None, max_seconds: float) -> None:
        self.directory = directory
        self.every_epochs = every_epochs
        self.max_seconds = max_seconds
        self._cannot_render = False

    def on_epoch_end(self, loop: Orchestrator) -> None:
        """Record if it is time."""
        if self.every_epochs is not None and loop.counters.epoch % self.every_epochs == 0:
            loop.video = self._record(loop, f"epoch={loop.counters.epoch:04d}.mp4")

    def on_stop(self, loop: Orchestrator) -> None:
        """Record the final agent, unless somebody waits for the process to end."""
        if not loop.stop_signal.requested:
            self._record(loop, FINAL_VIDEO)
            self._film(loop)

    def _film(self, loop: Orchestrator) -> None:
        """What the workflow has to show, slowly enough to look at."""
        for name, frames in loop.workflow.films().items():
            path = self.directory / f"{name}.mp4"
            with VideoWriter(path, FILM_FPS) as video:
                for frame in frames:
                    video.add(frame)
            loop.monitor.log_video(path, f"val/{name}", loop.counters.env_steps)

    def _record(self, loop: Orchestrator, name: str) -> Path | None:
        if self._cannot_render:
            return None
        try:
            with loop.session.make_evaluation_environment("video", 1, render_mode="rgb_array") as environment:
                path = record_episode(
                    loop.workflow,
                    environment,
                    self.directory / name,
                    deterministic=loop.config.eval_deterministic,
                    seeds=loop.session.seeds,
                    max_seconds=self.max_seconds,
                    should_stop=lambda: loop.stop_signal.requested,
                )
        except GymlabError as error:
            self._cannot_render = True
            loop.monitor.notice(f"No video: {error}")
            return None
        if path is not None:
            loop.monitor.log_video(path, "val/video", loop.counters.env_steps)
        return path
