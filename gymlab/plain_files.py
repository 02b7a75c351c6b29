"""How the files of a run are opened and replaced: a run may come from somebody else, so no link is followed and no pipe waited for.

descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with open(path, "a", opener=open_plain) as file: ...
with open_to_read(path) as file: ...          # a link may be read through: it is judged where runs are found
with replacing(path) as temporary: ...        # a file that is whole or absent, whoever writes it
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gymlab.errors import GymlabError

KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
}


class NotPlainFile(GymlabError):
    """Something else lies where a run has a regular file, or a directory or link of its own."""


def open_plain(path: str | Path, flags: int, mode: int = 0o666) -> int:
    """`os.open` for a regular file that is no link; anything else there is an error that names it, and is neither opened nor waited for."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        # ELOOP: a link; ENXIO: a pipe that nobody reads, a socket or a device that is not there.
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _refused(path, os.lstat(path).st_mode) from None
        raise
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise _refused(path, found)
    return descriptor


def open_to_read(path: str | Path) -> BinaryIO:
    """A regular file to read, also at the end of a link; anything else is an error that names it, and is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        # ENXIO: a socket; ELOOP: a link that leads round in circles.
        if error.errno in (errno.ENXIO, errno.ELOOP):
            raise _refused(path, os.lstat(path).st_mode) from None
        raise
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise _refused(path, found)
    return os.fdopen(descriptor, "rb")


def check_kind(path: Path, kind: int) -> None:
    """An error for something else than this kind of file (`stat.S_IFDIR`, `stat.S_IFLNK`); where nothing lies there is none."""
    with suppress(FileNotFoundError):
        found = os.lstat(path).st_mode
        if stat.S_IFMT(found) != kind:
            raise _refused(path, found, kind)


def _refused(path: str | Path, mode: int, kind: int = stat.S_IFREG) -> NotPlainFile:
    found = KINDS.get(stat.S_IFMT(mode), "no file")
    return NotPlainFile(
        f"{path} is {found} where a run has {KINDS[kind]}. It is not opened; look at what it is, then delete it."
    )


def unused_name(path: Path) -> Path:
    """A name in the same directory, so that it can be renamed to `path`, and with the same suffix, by which programs tell formats."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    # What lies there is a leftover, or a link for somebody to write through.
    temporary.unlink(missing_ok=True)
    return temporary


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to: it takes the place of `path` when the block ends, and goes if it fails."""
    temporary = unused_name(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is whole or absent: under a temporary name, synced to the disk, renamed."""
    with replacing(path) as temporary, open(temporary, "xb", opener=open_plain) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
