"""What may reach a terminal: text without characters that move the cursor, hide, reorder or start an escape sequence.

A run may come from somebody else, and any name, reason or metric in it may hold such characters. They are replaced
where text is printed, not where it is read, so that no command can forget it.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gymlab.metrics.redact import redact_text

REPLACEMENT = "\ufffd"
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ud800-\udfff]"  # line separators, and halves of pairs, which cannot be encoded
)


def clean(text: str) -> str:
    """The text with each unsafe character replaced by one visible one; tabs and line feeds stay."""
    return _UNSAFE.sub(REPLACEMENT, text)


def escape_json(text: str) -> str:
    """JSON with unsafe characters written as `\\uXXXX`: the same document, safe to print."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class CleanConsole(Console):
    """A console that prints letters: no markup, no emoji codes, and nothing unsafe whatever it is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as it is laid out and measured, clean already."""
        return super().render_str(clean(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments with clean text. A `Text` is cleaned before it is laid out, so that its lines keep their width."""
        if isinstance(renderable, Text) and _UNSAFE.search(renderable.plain):
            renderable = renderable.copy()
            renderable.plain = clean(renderable.plain)
        for segment in super().render(renderable, options):
            if segment.control or not _UNSAFE.search(segment.text):
                yield segment
            else:
                yield Segment(clean(segment.text), segment.style)


class CleanFormatter(logging.Formatter):
    """Log lines for people: secrets blanked, nothing unsafe."""

    def format(self, record: logging.LogRecord) -> str:
        """The finished line, traceback included."""
        return clean(redact_text(super().format(record)))


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What the interpreter prints for an error that nobody caught, with secrets blanked and nothing unsafe."""
    lines = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(clean(redact_text(lines)))
