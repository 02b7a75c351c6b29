"""What commands print: tables and panels for people, JSON for programs, errors on one screen."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gymlab.metrics.redact import redact_text
from gymlab.metrics.terminal import CleanConsole, clean, escape_json

PLAIN_SECONDS = 10.0
"""Between two lines about how far something is, where no bar can be drawn."""


class Screen(CleanConsole):
    """A console that leaves a broken pipe to `main`, which knows the exit code for it."""

    def on_broken_pipe(self) -> None:
        """Let the error go on."""
        raise BrokenPipeError


def screen() -> Screen:
    """The console on the output stream."""
    return Screen()


def error_screen() -> Screen:
    """The console on the error stream: errors, notices, progress."""
    return Screen(stderr=True)


def show_error(message: str) -> None:
    """A red panel in a terminal, plain lines in a log."""
    console, message = error_screen(), redact_text(message)
    if console.is_terminal:
        console.print(Panel(Text(message), title="error", title_align="left", border_style="red"))
    else:
        console.print(Text(f"error: {message}"), soft_wrap=True)


def show_notices(notices: Sequence[str]) -> None:
    """What the user should know about what was read, on the error stream."""
    for notice in notices:
        error_screen().print(Text(f"note: {notice}", style="yellow"), soft_wrap=True)


def show_text(text: str) -> None:
    """Text letter by letter, whatever brackets and width it has."""
    sys.stdout.write(clean(text if text.endswith("\n") else text + "\n"))


def show_json(value: Any) -> None:
    """One JSON document on the output."""
    sys.stdout.write(escape_json(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)) + "\n")


@contextmanager
def output_kept_clean(clean: bool = True) -> Iterator[None]:
    """Send what libraries print to the error stream, so that JSON stands alone on the output."""
    if not clean:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def plain(value: Any) -> Any:
    """Values that JSON has: paths become text, arrays lists, and what is not finite null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(title: str, *columns: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """An empty table in the one style of all commands: columns in `right` are aligned there, those in `whole` not broken."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        side: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=side, header_style="dim", overflow="fold", no_wrap=column in whole)
    return made


@contextmanager
def progress(text: str, total: int, *, shown: bool = True) -> Iterator[Callable[..., None]]:
    """A bar on the error stream that goes away when all is done; in a pipe a line now and then.

    What it gives is called after each of `total` parts, or with the number of parts that are done and the steps so far.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = error_screen()
    counts = TextColumn("{task.fields[steps]}", markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), counts)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not (shown and console.is_terminal)
    ) as bar:
        task, finished, line_at = bar.add_task(text, total=total, steps=""), 0, time.monotonic() + PLAIN_SECONDS

        def advance(done: int | None = None, steps: int | None = None) -> None:
            nonlocal finished, line_at
            finished = finished + 1 if done is None else done
            told = "" if steps is None else f"{steps:,} steps"
            bar.update(task, completed=finished, steps=told)
            if shown and not console.is_terminal and time.monotonic() >= line_at:
                line_at = time.monotonic() + PLAIN_SECONDS
                parts = (f"{text} {finished}/{total}", told)
                console.print(Text(", ".join(part for part in parts if part)), soft_wrap=True)

        yield advance


def checkpoint_text(path: Path) -> str:
    """A checkpoint's path, and whether it is the best or the last one of its run."""
    from gymlab.engine.registry import links_to

    links = links_to(path)
    return f"{path} ({', '.join(links)})" if links else str(path)


def one_line(text: str) -> Text:
    """A text that is cut where its column ends instead of going on in the next line."""
    return Text(" ".join(text.splitlines()), no_wrap=True, overflow="ellipsis")


def bold(text: str) -> Text:
    """A text that stands out."""
    return Text(text, style="bold")


def ago(moment: float | None) -> str:
    """How long ago a time was: `just now`, `12 min ago`, `3 h ago`, `5 days ago`."""
    if moment is None:
        return "-"
    seconds = max(0.0, time.time() - moment)
    for unit, length in (("day", 86400), ("h", 3600), ("min", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return "just now"


def size(count: float) -> str:
    """`512 B`, `34.2 KB`, `1.5 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
