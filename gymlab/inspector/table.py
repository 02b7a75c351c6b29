"""metrics.csv of a run, column by column: only what is asked for is parsed, only new bytes are read, and a sample is there at once.

MetricsTable   one file; each wanted column is read on from where it was
Tables         all files of a server; what takes long is read by one thread in the background, a piece at a time
sample_rows    rows at evenly spaced places of a file of any size, in milliseconds
buckets        a long column as some hundred points with their mean, least and greatest value
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Condition, Lock, Thread

import numpy as np
import numpy.typing as npt

from gymlab.errors import GymlabError
from gymlab.plain_files import open_plain

PIECE_BYTES = 4 << 20
"""Read at a time in the background."""
AT_ONCE_BYTES = 2 << 20
"""What is still to be read is read within the request when it is no more than this."""
HEADER_BYTES = 1 << 20
SAMPLE_BYTES = 8192
"""Looked at for one row of a sample: longer lines are passed over."""
KEPT_BYTES = 512 << 20
KEPT_TABLES = 24
NEWLINE, COMMA = 10, 44

Columns = dict[str, npt.NDArray[np.float64]]


class Column:
    """The values of one metric so far, and how many bytes of the file they come from."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.rows = 0
        self._values = np.empty(1024)

    def append(self, values: npt.NDArray[np.float64]) -> None:
        """Add the values of further rows."""
        wanted = self.rows + len(values)
        if wanted > len(self._values):
            grown = np.empty(max(wanted, 2 * len(self._values)))
            grown[: self.rows] = self._values[: self.rows]
            self._values = grown
        self._values[self.rows : wanted] = values
        self.rows = wanted

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """What has been read; NaN where a row has no value."""
        return self._values[: self.rows]

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._values.nbytes


class MetricsTable:
    """One metrics.csv. The file stays open, so that one put in its place is told from it for certain."""

    _generations = itertools.count(1)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = next(self._generations)
        self._file = open_plain(path, os.O_RDONLY)
        header = os.pread(self._file, HEADER_BYTES, 0).partition(b"\n")
        self.names = header[0].decode(errors="replace").split(",") if header[1] else []
        self._start = len(header[0]) + 1
        self._places = {name: index for index, name in enumerate(self.names)}
        self._columns: dict[str, Column] = {}
        self._lock = Lock()
        self.odd_rows = 0
        """Lines that do not have a number in each of their columns."""
        self.damage = ""
        """Why the file cannot be read further."""

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @property
    def bytes_on_disk(self) -> int:
        """Length of the file now."""
        return os.fstat(self._file).st_size

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(column.size for column in list(self._columns.values()))

    def is_current(self) -> bool:
        """Whether the path still leads to this file, no shorter than what was read of it; a header that was torn is read anew."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        own = os.fstat(self._file)
        read = max((column.offset for column in list(self._columns.values())), default=0)
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev) and found.st_size >= read and bool(self.names)

    def unread(self, names: Iterable[str]) -> int:
        """Bytes that are still to be read for these columns."""
        end = self.bytes_on_disk
        offsets = [self._columns[name].offset if name in self._columns else self._start for name in self._known(names)]
        return max((end - offset for offset in offsets), default=0)

    def advance(self, names: Iterable[str], budget: int = PIECE_BYTES) -> bool:
        """Read on for the columns that are furthest behind; returns whether all of them have every whole line."""
        with self._lock:
            wanted = self._known(names)
            for name in wanted:
                self._columns.setdefault(name, Column(self._start))
            if not wanted:
                return True
            offset = min(self._columns[name].offset for name in wanted)
            behind = [name for name in wanted if self._columns[name].offset == offset]
            piece = os.pread(self._file, budget, offset)
            whole = piece.rfind(b"\n") + 1
            if whole:
                self._take(piece[:whole], behind)
            elif len(piece) == budget:
                self.damage = f"{self.path.name} is damaged: it has a line of more than {budget:,} bytes."
                return True
            ends = {self._columns[name].offset for name in wanted}
            return len(ends) == 1 and (not whole or self.bytes_on_disk - ends.pop() == 0)

    def columns(self, names: Iterable[str]) -> Columns:
        """What has been read of these columns, all of one length; a name that the file does not have is left out."""
        with self._lock:
            found = {name: self._columns[name].values for name in self._known(names) if name in self._columns}
        rows = min((len(values) for values in found.values()), default=0)
        return {name: values[:rows] for name, values in found.items()}

    def sample(self, names: Iterable[str], count: int) -> Columns:
        """These columns at evenly spaced places of the file, without reading the rest; a name that it does not have is left out."""
        wanted = self._known(names)
        return sample_rows(self._file, self._places, wanted, self._start, count) if wanted else {}

    def _known(self, names: Iterable[str]) -> list[str]:
        return [name for name in dict.fromkeys(names) if name in self._places]

    def _take(self, lines: bytes, names: Sequence[str]) -> None:
        places = [self._places[name] for name in names]
        parsed = parse_lines(lines, len(self.names), places)
        if parsed is None:
            parsed, odd = parse_odd_lines(lines, len(self.names), places)
            self.odd_rows += odd
        for name, values in zip(names, parsed, strict=True):
            column = self._columns[name]
            column.append(values)
            column.offset += len(lines)


class Tables:
    """The metrics of all runs that were asked for lately."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Path, MetricsTable] = OrderedDict()
        self._lock = Lock()
        self._waiting: deque[tuple[MetricsTable, tuple[str, ...]]] = deque()
        self._work = Condition()
        self._reader: Thread | None = None

    def open(self, path: Path) -> MetricsTable | None:
        """The table of a file, made anew when another file is in its place; None while there is none."""
        with self._lock:
            table = self._tables.get(path)
            if table is None or not table.is_current():
                self._tables.pop(path, None)
                try:
                    table = self._tables[path] = MetricsTable(path)
                except FileNotFoundError:
                    return None
                except OSError as error:
                    raise GymlabError(f"{path} cannot be read: {error.strerror}.") from error
            self._tables.move_to_end(path)
            while len(self._tables) > 1 and self._too_much():
                self._tables.popitem(last=False)
            return table

    def read(self, table: MetricsTable, names: Iterable[str]) -> bool:
        """Read what is new of these columns if that is little, else begin to read it in the background; returns whether all is read."""
        wanted = tuple(dict.fromkeys(names))
        if table.unread(wanted) <= AT_ONCE_BYTES:
            while not table.advance(wanted, AT_ONCE_BYTES):
                continue
            return True
        with self._work:
            if (table, wanted) not in self._waiting:
                self._waiting.append((table, wanted))
            if self._reader is None or not self._reader.is_alive():
                self._reader = Thread(target=self._read_on, name="gymlab-metrics", daemon=True)
                self._reader.start()
            self._work.notify()
        return False

    def _read_on(self) -> None:
        """A piece of each table in turn, so that a long one does not keep a short one waiting."""
        while True:
            with self._work:
                while not self._waiting:
                    self._work.wait()
                table, names = self._waiting[0]
            done = table.advance(names)
            with self._work:
                self._waiting.popleft()
                if not done:
                    self._waiting.append((table, names))

    def _too_much(self) -> bool:
        return len(self._tables) > KEPT_TABLES or sum(table.size for table in self._tables.values()) > KEPT_BYTES


def parse_lines(lines: bytes, width: int, places: Sequence[int]) -> list[npt.NDArray[np.float64]] | None:
    """The columns at `places` of whole lines; None where a line has another number of cells or one that is no number.

    Cells are found for the whole piece at once: splitting each line costs four times as much for a few columns of many.
    """
    buffer = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero((buffer == COMMA) | (buffer == NEWLINE))
    if len(ends) % width:
        return None
    grid = ends.reshape(-1, width)
    is_newline = buffer[grid] == NEWLINE
    if not is_newline[:, -1].all() or is_newline[:, :-1].any():
        return None
    starts = np.concatenate(([-1], ends[:-1])).reshape(-1, width) + 1
    try:
        return [_numbers(lines, starts[:, place], grid[:, place]) for place in places]
    except ValueError:
        return None


def _numbers(lines: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The cells between pairs of places as numbers; NaN for an empty one."""
    values = np.full(len(starts), np.nan)
    filled = np.flatnonzero(ends > starts)
    cells = zip(starts[filled].tolist(), ends[filled].tolist(), strict=True)
    values[filled] = [float(lines[start:end]) for start, end in cells]
    return values


def parse_odd_lines(lines: bytes, width: int, places: Sequence[int]) -> tuple[list[npt.NDArray[np.float64]], int]:
    """The same line by line, NaN for what is missing or no number; and how many lines are like that."""
    rows, odd = [], 0
    for line in lines.split(b"\n")[:-1]:
        cells = line.split(b",")
        found = [_number(cells[place]) if place < len(cells) else None for place in places]
        odd += len(cells) != width or None in found
        rows.append([np.nan if value is None else value for value in found])
    return list(np.array(rows, dtype=np.float64).reshape(-1, len(places)).T), odd


def _number(cell: bytes) -> float | None:
    if not cell:
        return np.nan
    try:
        return float(cell)
    except ValueError:
        return None


def sample_rows(file: int, places: Mapping[str, int], names: Sequence[str], start: int, count: int) -> Columns:
    """Rows of an open file at evenly spaced bytes; the first and the last whole line are among them."""
    end = os.fstat(file).st_size
    rows: dict[int, list[float]] = {}
    # A line begins after the end of another one: that is looked for from the byte before each place.
    pieces = [
        (origin, False) for origin in np.linspace(start - 1, max(start - 1, end - 2), count, dtype=np.int64).tolist()
    ]
    for origin, is_tail in [*pieces, (max(start - 1, end - SAMPLE_BYTES), True)]:
        piece = os.pread(file, SAMPLE_BYTES, origin)
        close = piece.rfind(b"\n") if is_tail else -1
        begin = piece.rfind(b"\n", 0, max(close, 0)) if is_tail else piece.find(b"\n")
        close = close if is_tail else piece.find(b"\n", begin + 1)
        if begin < 0 or close <= begin:
            continue
        cells = piece[begin + 1 : close].split(b",")
        found = [_number(cells[places[name]]) if places[name] < len(cells) else None for name in names]
        rows[origin + begin + 1] = [np.nan if value is None else value for value in found]
    values = np.array([rows[place] for place in sorted(rows)], dtype=np.float64).reshape(len(rows), len(names))
    return {name: values[:, index] for index, name in enumerate(names)}


def buckets(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], points: int) -> tuple[npt.NDArray[np.float64], ...]:
    """x, mean, least and greatest y of at most `points` groups of neighbouring rows; rows without a finite value are left out."""
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    if len(y) <= points:
        return x, y, y, y
    starts = np.linspace(0, len(y), points, endpoint=False).astype(np.int64)
    counts = np.diff(np.append(starts, len(y)))
    return (
        np.add.reduceat(x, starts) / counts,
        np.add.reduceat(y, starts) / counts,
        np.minimum.reduceat(y, starts),
        np.maximum.reduceat(y, starts),
    )
