"""TensorBoard: scalars and videos over env steps (extra `tensorboard`)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from gymlab.errors import GymlabError
from gymlab.metrics.monitor import Sink
from gymlab.metrics.video import to_gif, video_size

VIDEO_FPS = 15
VIDEO_WIDTH = 320


class TensorBoardSink(Sink):
    """One event an epoch with all its scalars; a writer thread puts them on disk."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise GymlabError(
                f'TensorBoard is not installed ({error}). Install it with: pip install "gymlab[tensorboard]", '
                "or set enable_tensorboard=false."
            ) from error
        self._event = event_pb2.Event
        self._summary = summary_pb2.Summary
        self._writer = EventFileWriter(str(directory))

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Write the scalars at this env step."""
        self._write([self._summary.Value(tag=name, simple_value=value) for name, value in row.items()], env_steps)

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Write the video as a moving picture: TensorBoard's Images tab plays GIFs."""
        width, height = video_size(path)
        shown_width = min(width, VIDEO_WIDTH)
        with tempfile.TemporaryDirectory() as directory:
            gif = to_gif(path, Path(directory) / "video.gif", width=shown_width, fps=VIDEO_FPS)
            picture = gif.read_bytes()
        shown_height = round(height * shown_width / width)
        image = self._summary.Image(height=shown_height, width=shown_width, colorspace=3, encoded_image_string=picture)
        self._write([self._summary.Value(tag=name, image=image)], env_steps)

    def flush(self) -> None:
        """Put everything on disk."""
        self._writer.flush()

    def close(self) -> None:
        """End the event file."""
        self._writer.close()

    def _write(self, values: list, env_steps: int) -> None:
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=time.time(), step=env_steps, summary=summary))
