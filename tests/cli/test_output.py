"""Texts for people and JSON for programs."""

import json
import sys
import time
from pathlib import Path

import numpy as np

from gymlab.cli import output


def test_plain_has_only_what_json_has():
    value = {
        "a": np.float32(0.5),
        "b": np.array([1, 2]),
        "c": Path("x/y"),
        4: (float("nan"), float("inf"), 1.5),
        "d": None,
    }
    assert output.plain(value) == {"a": 0.5, "b": [1, 2], "c": "x/y", "4": [None, None, 1.5], "d": None}


def test_show_json_prints_one_document(capsys):
    output.show_json({"text": "ü [x]"})
    assert json.loads(capsys.readouterr().out) == {"text": "ü [x]"}


def test_output_kept_clean(capsys):
    with output.output_kept_clean():
        print("noise")
    with output.output_kept_clean(False):
        print("signal")
    captured = capsys.readouterr()
    assert captured.out == "signal\n"
    assert captured.err == "noise\n"


def test_an_error_is_shown_letter_by_letter(capsys):
    output.show_error("no [bold]markup[/] here, " + "x" * 200)
    shown = capsys.readouterr()
    assert shown.err == "error: no [bold]markup[/] here, " + "x" * 200 + "\n"
    assert shown.out == ""


def test_an_error_in_a_terminal_is_a_panel(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    output.show_error("message")
    shown = capsys.readouterr().err
    assert "\x1b[31m╭─" in shown
    assert "error" in shown
    assert "message" in shown


def test_ago():
    assert output.ago(None) == "-"
    assert output.ago(time.time() - 3) == "just now"
    assert output.ago(time.time() - 125) == "2 min ago"
    assert output.ago(time.time() - 7300) == "2 h ago"
    assert output.ago(time.time() - 86400 * 3 - 5) == "3 days ago"


def test_size():
    assert output.size(512) == "512 B"
    assert output.size(1536) == "1.5 KB"
    assert output.size(3 * 2**30) == "3.0 GB"


def test_a_broken_pipe_is_left_to_main(monkeypatch):
    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdout", Gone())
    try:
        output.screen().print("text")
    except BrokenPipeError:
        return
    raise AssertionError("the pipe's end was swallowed")
