"""What an environment did wrong, in a few lines for its author: the line of their own file and the error first.

my_env.py:40, in step: AttributeError: 'Maze' object has no attribute 'count'
    self.count += 1
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from gymlab.envs.contract import EnvironmentExit

MOST_FRAMES = 4
"""Places that are shown of one error: where it was raised, and who called that."""
MOST_LINES = 16
"""Lines of a whole crash: it stands on one screen with what surrounds it."""


def describe_crash(error: BaseException) -> str:
    """The error and the places that it came through in the environment's own files, and what caused it, the newest first."""
    lines: list[str] = []
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        lines += [
            ("caused by " if lines else "") + line if not index else line for index, line in enumerate(_told(link))
        ]
        if isinstance(link, EnvironmentExit):
            break
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "..."])


def raised_by_author(error: BaseException) -> bool:
    """Whether an error came through a file of the environment's author."""
    return any(_is_own(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def method_place(layers: Iterable[Any], name: str) -> str:
    """File and line of the method of an environment's author; empty where none of the layers is theirs, or several."""
    codes = [getattr(getattr(type(layer), name), "__code__", None) for layer in layers]
    own = {(code.co_filename, code.co_firstlineno) for code in codes if code and _is_own(code.co_filename)}
    if len(own) != 1:
        return ""
    ((filename, line),) = own
    return f"{_shown(filename)}:{line}, in {name}"


def _told(error: BaseException) -> list[str]:
    message, *more = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
    if isinstance(error, EnvironmentExit) and error.__cause__ is not None:
        message, error = str(error), error.__cause__
    if isinstance(error, SyntaxError):
        # Its place is the file that does not parse, which Python prints in front of the message.
        *more, message = [message, *more]
        return [f"{_shown(error.filename or '?')}:{error.lineno}: {message}", *more[1:]]
    frames = _own(traceback.extract_tb(error.__traceback__))
    if not frames:
        return [message, *more]
    lines = [f"{_place(frames[-1])}: {message}", *more, *_code(frames[-1])]
    for frame in frames[-2 : -MOST_FRAMES - 1 : -1]:
        lines += [f"  called from {_place(frame)}", *_code(frame)]
    return lines


def _own(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Frames of the environment's author; else of a package that is neither Gymnasium nor ours; else where it was raised."""
    strange = [frame for frame in frames if not _below(frame.filename, _interfaces())]
    own = [frame for frame in frames if _is_own(frame.filename)]
    return own or strange[-MOST_FRAMES:] or frames[-1:]


def _is_own(filename: str) -> bool:
    return not (_below(filename, _interfaces()) or _below(filename, _libraries()))


@cache
def _interfaces() -> tuple[Path, ...]:
    import gymnasium

    # Of multiprocessing and others of the standard library there is a frame below each worker.
    standard = [Path(sysconfig.get_path(name)) / "multiprocessing" for name in ("stdlib", "platstdlib")]
    return Path(__file__).parents[1], Path(gymnasium.__path__[0]), *standard


@cache
def _libraries() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_path(name)) for name in names} | {Path(sys.base_prefix) / "lib"})


def _below(filename: str, directories: tuple[Path, ...]) -> bool:
    return filename.startswith("<frozen") or any(Path(filename).is_relative_to(directory) for directory in directories)


def _place(frame: traceback.FrameSummary) -> str:
    return f"{_shown(frame.filename)}:{frame.lineno}, in {frame.name}"


def _shown(filename: str) -> str:
    """A path from here where it is below this directory: shorter, and terminals open it as well."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def _code(frame: traceback.FrameSummary) -> list[str]:
    return [f"    {frame.line}"] if frame.line else []
