"""Nothing that is printed can steer a terminal, whatever text it is made of."""

import io
import json
import logging
import sys

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gymlab.metrics.console import ConsoleSink
from gymlab.metrics.runlog import LOGGER, RunLogSink
from gymlab.metrics.terminal import CleanConsole, CleanFormatter, clean, escape_json, print_traceback

UNSAFE = [
    *map(chr, (*range(9), *range(11, 32), *range(127, 160))),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029",
    "\ud800",
    "\udfff",
]
EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\r[/red] :smile:"


@pytest.mark.parametrize("character", UNSAFE, ids=ascii)
def test_each_unsafe_character_becomes_a_visible_one(character):
    assert clean(f"a{character}b") == "a\ufffdb"
    written = escape_json(json.dumps({"a": f"x{character}y"}, ensure_ascii=False))
    assert character not in written
    assert json.loads(written) == {"a": f"x{character}y"}


def test_letters_of_all_languages_and_line_ends_stay():
    text = "größer ≥ 475 ✓\tрусский 日本語 עברית 👩‍🔬\n"
    assert clean(text) == text


@pytest.mark.parametrize("colour", [False, True])
def test_a_console_prints_whatever_it_is_given_as_letters(colour):
    file = io.StringIO()
    console = CleanConsole(file=file, force_terminal=colour, width=200)
    table = Table(title=EVIL, caption=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    console.print(EVIL, table, Panel(Text(EVIL), title=Text(EVIL), subtitle=Text(EVIL)), style="red")
    shown = file.getvalue()
    assert not any(part in shown for part in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\r", "\x07"))
    assert shown.count("]0;title") == 9
    assert shown.count("[/red] :smile:") == 9


def test_a_table_stays_in_line():
    file = io.StringIO()
    table = Table()
    table.add_column()
    table.add_column()
    table.add_row("a\x1bb", Text("c\x1bd"))
    table.add_row("plain", "words")
    CleanConsole(file=file, width=60).print(table)
    assert len({len(line) for line in file.getvalue().splitlines()}) == 1


def test_the_screen_of_a_training(tmp_path):
    file = io.StringIO()
    sink = ConsoleSink(title=EVIL, budget=100, console=CleanConsole(file=file, force_terminal=True, width=120))
    sink.log({EVIL: 1.0, "train/cnt/env_steps": 10.0}, 10)
    sink.notice(EVIL)
    sink.show(EVIL)
    sink.close()
    assert "]0;title" in file.getvalue()
    assert not any(part in file.getvalue() for part in ("\x1b]", "\x1b[2J\x9b", "\u202e", "\x07"))
    default = ConsoleSink()
    default.close()
    assert type(default.console) is CleanConsole


def test_run_log(tmp_path):
    sink = RunLogSink(tmp_path / "run.log")
    sink.log_text(EVIL)
    LOGGER.warning("%s", EVIL)
    sink.close()
    text = (tmp_path / "run.log").read_text()
    assert text == clean(text)
    assert text.count("]0;title") == 2


def test_tracebacks_and_warnings(capsys):
    try:
        raise ValueError(EVIL + " password=hunter22")
    except ValueError:
        print_traceback(*sys.exc_info())
        record = logging.LogRecord("x", logging.WARNING, "f", 1, "%s", (EVIL,), sys.exc_info())
    shown = capsys.readouterr().err
    assert shown == clean(shown)
    assert "Traceback" in shown
    assert "ValueError: \ufffd]0;title" in shown
    assert "hunter22" not in shown
    line = CleanFormatter().format(record)
    assert line == clean(line)
    assert "hunter22" not in line
