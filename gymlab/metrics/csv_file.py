"""metrics.csv: one row an epoch, columns that may grow, readable at any moment, floats that read back to the bit."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gymlab.errors import GymlabError, RunGone
from gymlab.metrics.monitor import Sink
from gymlab.metrics.names import ENV_STEPS, EPOCH
from gymlab.plain_files import open_plain, open_to_read, replace_file

logger = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
"""Rows that come faster than this are written together."""
TAIL_BYTES = 65536
"""The newest row is looked for in so much of the end of the file."""


class CsvSink(Sink):
    """Writes whole lines only; the file is never more than a second behind. An existing file is continued.

    Fast epochs are formatted together: done one by one between updates, each would start with cold caches.
    """

    def __init__(
        self, path: str | Path, write_seconds: float = WRITE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = Path(path)
        self.columns: list[str] = []
        if self.path.exists():
            _drop_torn_line(self.path)
            self.columns = _read_lines(self.path)[0]
        self._known = set(self.columns)
        self._descriptor = self._open()
        self._directory = os.stat(self.path.parent)
        self._waiting: list[Mapping[str, float]] = []
        self._write_seconds = write_seconds
        self._clock = clock
        self._next_write = -float("inf")

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Append a row (not to be changed afterwards); names seen for the first time become columns at the right."""
        self._waiting.append(row)
        if self._clock() >= self._next_write:
            self._write()

    def set_phase(self, phase: str) -> None:
        """Write what waits: the next row may be a long time coming."""
        self._write()

    def flush(self) -> None:
        """Write what waits and wait until the file is on disk; an error if that is no longer the run's directory."""
        self._write()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Put the file on disk and close it."""
        try:
            self.flush()
        finally:
            os.close(self._descriptor)

    def _write(self) -> None:
        self._look()
        rows, self._waiting = self._waiting, []
        self._next_write = self._clock() + self._write_seconds
        names = dict.fromkeys(name for row in rows for name in row)
        if not self._known.issuperset(names):
            self._add_columns([name for name in names if name not in self._known])
        lines = [",".join([_cell(row.get(name)) for name in self.columns]) + "\n" for row in rows]
        _write_all(self._descriptor, "".join(lines).encode())

    def _look(self) -> None:
        """Write the file anew where somebody has deleted or replaced it; an error if its directory is gone."""
        if not self.path.parent.is_dir() or not os.path.samestat(self._directory, os.stat(self.path.parent)):
            raise RunGone(self.path.parent)
        opened = os.fstat(self._descriptor)
        try:
            if os.path.samestat(opened, os.lstat(self.path)):
                return
            os.close(self._open())  # What is no regular file is an error that names it.
        except FileNotFoundError:
            pass
        replace_file(self.path, os.pread(self._descriptor, opened.st_size, 0))
        os.close(self._descriptor)
        self._descriptor = self._open()
        logger.warning(
            "%s was deleted or replaced while the run trained. It is written anew with all its rows.", self.path
        )

    def _open(self) -> int:
        return open_plain(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)

    def _add_columns(self, names: list[str]) -> None:
        """Write the file anew under a wider header and put it in place of the old one."""
        for name in names:
            if not name or any(character in name for character in ',"\r\n'):
                raise GymlabError(
                    f"Metric name {name!r} cannot be a column of {self.path}: no commas, quotes or line breaks."
                )
        old_lines = self.path.read_text(encoding="utf-8").splitlines()[1:]
        self.columns += names
        self._known.update(names)
        padding = "," * len(names)
        _write_lines(self.path, [",".join(self.columns), *(line + padding for line in old_lines)])
        os.close(self._descriptor)
        self._descriptor = self._open()


def read_metrics(path: str | Path) -> dict[str, list[float | None]]:
    """Columns by name, None where a row has no value; safe to call while a run is writing."""
    path = Path(path)
    columns, rows = _read_lines(path)
    table: dict[str, list[float | None]] = {}
    try:
        for index, name in enumerate(columns):
            table[name] = [_parse(row[index]) if index < len(row) else None for row in rows]
    except ValueError as error:
        raise damaged(path, error) from error
    return table


def damaged(path: Path, problem: object) -> GymlabError:
    """An error about a metrics file that cannot be read, with the way on."""
    return GymlabError(
        f"{path} is damaged: {str(problem)[:200]}. Move it out of the run: `gymlab train --resume {path.parent.name}` begins a new one."
    )


def last_row(path: Path) -> dict[str, float]:
    """The newest whole row of a metrics file that is being written, from the file's end; empty before the first."""
    try:
        with open_to_read(path) as file:
            columns = file.readline(TAIL_BYTES).decode(errors="replace").strip().split(",")
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except FileNotFoundError:
        return {}
    cells = lines[-1].split(",") if lines else []
    try:
        return {name: float(cell) for name, cell in zip(columns, cells, strict=False) if cell}
    except ValueError as error:
        raise damaged(path, error) from error


def truncate_after(path: str | Path, env_steps: int, epoch: int | None = None) -> int:
    """Cut the rows after a checkpoint (by epoch too, for phases that take no env steps); returns how many were cut.

    Columns without a value in what is left go as well, so that the file is as it was at the checkpoint.
    """
    path = Path(path)
    columns, rows = _read_lines(path)
    if not columns:
        return 0
    kept = []
    try:
        for row in rows:
            cells = row + [""] * (len(columns) - len(row))
            if _at_most(cells, columns, ENV_STEPS, env_steps) and _at_most(cells, columns, EPOCH, epoch):
                kept.append(cells)
    except ValueError as error:
        raise damaged(path, error) from error
    used = [index for index in range(len(columns)) if any(cells[index] for cells in kept)]
    lines = [[columns[index] for index in used], *([cells[index] for index in used] for cells in kept)] if kept else []
    _write_lines(path, [",".join(line) for line in lines])
    return len(rows) - len(kept)


def _at_most(cells: list[str], columns: list[str], name: str, limit: int | None) -> bool:
    if limit is None or name not in columns:
        return True
    value = _parse(cells[columns.index(name)])
    return value is None or value <= limit


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if type(value) is float or type(value) is int:
        return repr(value)
    return repr(float(value))  # numpy's own repr is `np.float64(...)`


def _parse(cell: str) -> float | None:
    if not cell:
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows; a last line that is still being written is left out."""
    try:
        with open_to_read(path) as file:
            text = file.read().decode("utf-8")
    except FileNotFoundError:
        raise GymlabError(f"No metrics at {path}. A run writes metrics.csv at its first epoch.") from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"it holds bytes that are no text ({error})") from error
    lines = text.split("\n")[:-1]
    if not lines:
        return [], []
    return lines[0].split(","), [line.split(",") for line in lines[1:]]


def _drop_torn_line(path: Path) -> None:
    """Cut what a killed process left of a line."""
    with open(path, "r+b", opener=open_plain) as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def _write_lines(path: Path, lines: list[str]) -> None:
    replace_file(path, "".join(line + "\n" for line in lines).encode())


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        data = data[written:]
        written = os.write(descriptor, data)
