"""Videos: frames streamed to mp4 as they come, never held in memory; and a GIF made from one."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.errors import GymlabError
from gymlab.plain_files import replacing, unused_name

MAX_FRAMES = 3000
"""100 seconds at 30 frames a second."""


class VideoWriter:
    """Streams frames to an mp4 that appears under its name when it is whole. Frames beyond `max_frames` are left out.

    with VideoWriter(path, fps=30) as video:
        video.add(frame)
    """

    def __init__(self, path: str | Path, fps: float = 30, max_frames: int = MAX_FRAMES) -> None:
        self.path = Path(path)
        self.fps = fps
        self.max_frames = max_frames
        self.frames = 0
        self._shape: tuple[int, ...] = ()
        self._encoder: Generator[None, Any, None] | None = None
        self._temporary: Path | None = None

    @property
    def full(self) -> bool:
        """Whether further frames would be left out."""
        return self.frames >= self.max_frames

    def add(self, frame: np.ndarray) -> bool:
        """Add a uint8 frame [height, width, 3] (or grey: [height, width], [height, width, 1]); False when full."""
        if self.full:
            return False
        pixels = _as_rgb(frame)
        if self._encoder is None:
            self._shape = pixels.shape
            self._encoder = self._start(pixels)
        if pixels.shape != self._shape:
            raise GymlabError(f"{self.path}: a frame of {_size(pixels.shape)} after frames of {_size(self._shape)}.")
        self._encoder.send(_even(pixels))
        self.frames += 1
        return True

    def close(self) -> Path | None:
        """Finish the file; its path, or None when there was no frame."""
        if self._encoder is None:
            return None
        assert self._temporary is not None
        self._stop()
        self._temporary.replace(self.path)
        return self.path

    def discard(self) -> None:
        """Throw away what was written."""
        self._stop()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _start(self, pixels: np.ndarray) -> Generator[None, Any, None]:
        import imageio_ffmpeg

        self.path.parent.mkdir(exist_ok=True)
        self._temporary = unused_name(self.path)
        height, width = _even(pixels).shape[:2]
        encoder = imageio_ffmpeg.write_frames(
            str(self._temporary),
            (width, height),
            fps=self.fps,
            codec="libx264",
            macro_block_size=1,
            ffmpeg_log_level="error",
            # Players can start before they have the whole file; one thread leaves the cores to the training.
            output_params=["-movflags", "+faststart", "-preset", "veryfast", "-threads", "1", "-crf", "23"],
        )
        encoder.send(None)
        return encoder

    def _stop(self) -> None:
        if self._encoder is not None:
            self._encoder.close()
            self._encoder = None


AS_MP4 = ("-f", "mp4")
"""How ffmpeg reads a video of a run, whatever it holds: a text could name other files, or addresses, to be read in its place."""


class FrameReader:
    """Frames of an mp4 by number, read when they are asked for: going on is quick, going far back begins anew."""

    KEPT = 64
    """Frames that are held, the newest ones."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.count = _count_of_mp4(self.path)
        self._kept: dict[int, np.ndarray] = {}
        self._reader: Generator[Any, None, None] | None = None
        self._position = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        """One frame as uint8 [height, width, 3]."""
        if not 0 <= index < self.count:
            raise IndexError(f"{self.path} has {self.count} frames; there is no frame {index}.")
        if index not in self._kept and (self._reader is None or index < self._position):
            self._open()
        while index not in self._kept:
            assert self._reader is not None
            with _damaged_if_unread(self.path):
                data = next(self._reader, None)
            if data is None:
                raise GymlabError(f"{self.path} ends before its frame {index}: it is damaged. Delete it.")
            self._kept[self._position] = np.frombuffer(data, np.uint8).reshape(self._height, self._width, 3)
            self._kept.pop(self._position - self.KEPT, None)
            self._position += 1
        return self._kept[index]

    def _open(self) -> None:
        import imageio_ffmpeg

        self.close()
        reader = imageio_ffmpeg.read_frames(str(self.path), input_params=list(AS_MP4))
        with _damaged_if_unread(self.path):
            self._width, self._height = next(reader)["size"]
        self._reader = reader

    def close(self) -> None:
        """End the program that reads."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._position, self._kept = None, 0, {}


def _count_of_mp4(path: Path) -> int:
    """How many frames an mp4 has; anything else is an error that names it."""
    import imageio_ffmpeg

    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-nostdin",
        "-loglevel",
        "error",
        "-progress",
        "-",
        *AS_MP4,
        "-i",
        str(path),
    ]
    finished = subprocess.run(
        [*command, "-map", "0:v:0", "-f", "null", os.devnull],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    counts = re.findall(r"^frame= *(\d+)$", finished.stdout, re.MULTILINE)
    if finished.returncode != 0 or not counts:
        raise _damaged(path, finished.stderr)
    return int(counts[-1])


@contextmanager
def _damaged_if_unread(path: Path) -> Iterator[None]:
    """What imageio raises for a video that cannot be read becomes an error that names it."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, told: str) -> GymlabError:
    lines = told.strip().splitlines() or ["it holds no picture"]
    return GymlabError(f"{path} is no mp4 that can be read ({lines[-1][:200]}). Delete it.")


def read_frame(path: str | Path, index: int) -> np.ndarray:
    """One frame of a video as uint8 [height, width, 3]; negative indices count from the end."""
    frames = _read_frames(path)
    if not -len(frames) <= index < len(frames):
        raise GymlabError(f"{path} has {len(frames)} frames; there is no frame {index}.")
    return frames[index]


def frame_count(path: str | Path) -> int:
    """How many frames a video has."""
    import imageio_ffmpeg

    count, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    return int(count)


def video_size(path: str | Path) -> tuple[int, int]:
    """Width and height of a video."""
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    reader.close()
    return width, height


def to_gif(mp4: str | Path, gif: str | Path, *, width: int = 320, fps: int = 15) -> Path:
    """Make a GIF of a video, with a palette of its own so that colours stay true."""
    import imageio_ffmpeg

    gif = Path(gif)
    filters = f"fps={fps},scale={width}:-1:flags=lanczos,split[a][b];[a]palettegen=stats_mode=diff[p];[b][p]paletteuse"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-i", str(mp4), "-vf", filters]
    with replacing(gif) as temporary:
        finished = subprocess.run([*command, "-loop", "0", str(temporary)], capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise GymlabError(f"{mp4} could not be made into a GIF: {finished.stderr.strip()[-500:]}")
    return gif


def _read_frames(path: str | Path) -> list[np.ndarray]:
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return [np.frombuffer(data, dtype=np.uint8).reshape(height, width, 3) for data in reader]


def _as_rgb(frame: np.ndarray) -> np.ndarray:
    pixels = np.asarray(frame)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise GymlabError(
            f"A video frame is uint8 [height, width, 3]; this one is {pixels.dtype} {list(pixels.shape)}. "
            "Make the environment with render_mode='rgb_array'."
        )
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]


def _even(pixels: np.ndarray) -> np.ndarray:
    """Repeat the last row or column where the size is odd: the colour format of players needs even sizes."""
    odd_rows, odd_columns = pixels.shape[0] % 2, pixels.shape[1] % 2
    if odd_rows or odd_columns:
        pixels = np.pad(pixels, ((0, odd_rows), (0, odd_columns), (0, 0)), mode="edge")
    return np.ascontiguousarray(pixels)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}x{shape[0]}"
