"""Who trains in a run directory: a lock that the kernel releases when its process ends, however it ends.

A POSIX record lock belongs to one process. Environment workers that are forked from a training do not inherit it, so
that one that outlives its parent does not keep the run locked; and looking at it (`look_at`) never takes it. Its one
trap is that closing any descriptor of the file releases it: nothing else may open `run.lock` in the process that
holds it, which `_held` is there for.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymlab.errors import EnvironmentFailure, GymlabError, NonFiniteError, RunGone
from gymlab.plain_files import NotPlainFile, open_plain

logger = logging.getLogger(__name__)

LOCK_FILE = "run.lock"
"""Lies in each run's directory. It is never deleted, for a lock on a deleted file would exclude nobody."""

_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"
"""Layout of C's `struct flock`."""
_CLOCK_TOLERANCE = 2.0
"""A process's start time is derived from the clock, which may be set while the process lives."""

_held: dict[tuple[int, int], tuple[int, Path]] = {}
"""Lock files that are locked here, by device and inode, with process and directory: a forked child sees its parent's."""
_guard = threading.Lock()


@dataclass(frozen=True)
class LockState:
    """Whether a run directory is locked; `held` is None where that cannot be known (no lock file, no locks there)."""

    held: bool | None
    pid: int | None = None
    host: str | None = None


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory; an error that names the process and host when another one does.

    What fails because the directory went away meanwhile is a `RunGone`.
    """
    descriptor = _acquire(directory)
    try:
        yield
    except (NonFiniteError, EnvironmentFailure):
        raise  # What the run itself came to is the better message.
    except (OSError, GymlabError) as error:
        if not isinstance(error, RunGone) and is_gone(directory):
            raise RunGone(directory) from error
        raise
    finally:
        status = os.fstat(descriptor)
        _held.pop((status.st_dev, status.st_ino), None)
        os.close(descriptor)


def is_gone(directory: Path) -> bool:
    """Whether a run whose lock this process holds is no longer there: deleted, moved away or emptied, its lock with it."""
    held = [identity for identity, holder in list(_held.items()) if holder == (os.getpid(), directory)]
    if not held:
        return False
    try:
        found = (directory / LOCK_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    return (found.st_dev, found.st_ino) not in held


def delete_run(directory: Path) -> None:
    """Delete a run whose lock this process holds: then it did not go away, and the error that came before is the one that is raised."""
    for identity, holder in list(_held.items()):
        if holder == (os.getpid(), directory):
            del _held[identity]
    shutil.rmtree(directory, ignore_errors=True)


def refuse_if_gone(directory: Path) -> None:
    """An error when the run that is trained here went away: what is written by its name would make it anew."""
    if is_gone(directory):
        raise RunGone(directory)


def look_at(directory: Path) -> LockState:
    """Whether a process holds the lock, without taking it."""
    path = directory / LOCK_FILE
    with _guard:
        if _is_ours(path):
            return LockState(True, os.getpid(), os.uname().nodename)
        try:
            descriptor = open_plain(path, os.O_RDONLY)
        except (OSError, NotPlainFile):
            return LockState(None)
        try:
            return _query(descriptor)
        finally:
            os.close(descriptor)


def this_process() -> dict[str, Any]:
    """What tells this process from any other, also from a later one with the same number."""
    import psutil

    return {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "boot": boot_id(),
        "process_started": psutil.Process().create_time(),
    }


def boot_id() -> str | None:
    """What tells this start of the machine from earlier ones and from other machines; None where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def is_alive(process: Mapping[str, Any]) -> bool:
    """Whether a process of this host, as `this_process` told of it, is still there and not another with its number."""
    import psutil

    pid, boot, started = process.get("pid"), process.get("boot"), process.get("process_started")
    if not isinstance(pid, int) or pid < 1 or (boot is not None and boot != boot_id()):
        return False
    try:
        found = psutil.Process(pid)
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
        return not isinstance(started, int | float) or abs(found.create_time() - started) < _CLOCK_TOLERANCE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _acquire(directory: Path) -> int:
    path = directory / LOCK_FILE
    with _guard:
        if _is_ours(path):
            raise _in_use(directory, LockState(True, os.getpid(), os.uname().nodename))
        try:
            descriptor = open_plain(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            raise RunGone(directory) from None
        opened = os.fstat(descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or not os.path.samestat(opened, path.stat()):
                raise GymlabError(f"Run {directory.name} was moved away by another process. `gymlab runs` shows them.")
            owner = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                logger.warning("%s is on a file system without locks: do not train in one run twice.", directory)
                _held[opened.st_dev, opened.st_ino] = os.getpid(), directory
                return descriptor
            state = _query(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _in_use(directory, state) from None
            raise
        except GymlabError:
            os.close(descriptor)
            raise
        _held[opened.st_dev, opened.st_ino] = os.getpid(), directory
        return descriptor


def _in_use(directory: Path, state: LockState) -> GymlabError:
    return GymlabError(
        f"Run {directory.name} is in use by process {state.pid or 'unknown'} on {state.host or 'another host'}. "
        f"Wait for it, or stop it first (kill -TERM {state.pid or 'PID'} lets it save)."
    )


def _is_ours(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    holder = _held.get((status.st_dev, status.st_ino))
    return holder is not None and holder[0] == os.getpid()


def _query(descriptor: int) -> LockState:
    """Ask the kernel who holds the lock; what the holder wrote about itself helps where that is another machine."""
    whole_file = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else (fcntl.F_WRLCK, 0, 0, 0, 0)
    try:
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *whole_file)))
    except OSError:
        return LockState(None)
    pid, kind = (answer[2], answer[3]) if sys.platform == "darwin" else (answer[4], answer[0])
    if kind == fcntl.F_UNLCK:
        return LockState(False)
    if pid > 0:
        return LockState(True, pid, os.uname().nodename)
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return LockState(True, int(owner["pid"]), str(owner["host"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return LockState(True)
