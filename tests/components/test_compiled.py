"""Kernels in C: found, compiled once, and done without."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from gymlab.components import compiled

needs_compiler = pytest.mark.skipif(
    compiled.find_compiler() is None or torch.backends.cpu.get_cpu_capability() not in compiled.REGISTERS,
    reason="no C compiler, or a processor of another kind",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(compiled.OFF, raising=False)
    return tmp_path / "gymlab"


@needs_compiler
def test_compiled_once_and_kept(cache, monkeypatch) -> None:
    assert compiled.kernels("winograd").convolve
    (library,) = cache.iterdir()
    made = library.stat().st_mtime_ns
    monkeypatch.setattr(compiled, "compile_library", lambda *_: pytest.fail("compiled again"))
    assert compiled.kernels("winograd").convolve
    assert library.stat().st_mtime_ns == made


@needs_compiler
def test_a_source_that_changed_is_compiled_anew(cache, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    for number in (3, 4):
        (tmp_path / "one.c").write_text(f"int number(void) {{ return {number}; }}")
        assert compiled.kernels("one").number() == number
    assert len(list(cache.iterdir())) == 2


@needs_compiler
def test_what_does_not_compile_is_told_and_done_without(cache, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    (tmp_path / "broken.c").write_text("int number(void) { return nothing; }")
    with caplog.at_level(logging.WARNING):
        assert compiled.kernels("broken") is None
    assert "broken.c could not be compiled" in caplog.text
    assert "nothing" in caplog.text
    assert not list(cache.iterdir())


@needs_compiler
def test_a_cache_that_cannot_be_written_is_told(cache, caplog) -> None:
    cache.write_text("a file where the directory would be")
    with caplog.at_level(logging.WARNING):
        assert compiled.kernels("winograd") is None
    assert "torch computes instead" in caplog.text


def test_no_compiler_no_kernels(cache, monkeypatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.find_compiler() is None
    assert compiled.kernels("winograd") is None
    assert not cache.exists()


def test_turned_off_by_the_environment(cache, monkeypatch) -> None:
    monkeypatch.setenv(compiled.OFF, "0")
    assert compiled.kernels("winograd") is None
    assert not cache.exists()


def test_other_processors_are_left_to_torch(cache, monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "NEON")
    assert compiled.kernels("winograd") is None
    assert not cache.exists()


def test_the_compiler_that_was_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(compiled.shutil, "which", lambda name: f"/somewhere/{name}")
    monkeypatch.setenv("CC", "ccache gcc")
    assert compiled.find_compiler() == ["ccache", "gcc"]
    monkeypatch.delenv("CC")
    assert compiled.find_compiler() == ["cc"]


def test_the_first_answer_counts(cache) -> None:
    cache.mkdir()
    assert compiled.first_answer("quicker", lambda: True)
    assert compiled.first_answer("quicker", lambda: False)
    assert not compiled.first_answer("slower", lambda: False)


def test_another_processor_is_asked_anew(cache, monkeypatch) -> None:
    cache.mkdir()
    for name, answer in (("one", True), ("other", False), ("one", True)):
        monkeypatch.setattr(compiled, "_processor", lambda name=name: name)
        assert compiled.first_answer("quicker", lambda answer=answer: answer) == answer


def test_other_instructions_are_asked_anew(cache, monkeypatch) -> None:
    """Torch's convolutions take another time with them."""
    cache.mkdir()
    for limit, answer in (("AVX2", True), ("SSE41", False), ("AVX2", True)):
        monkeypatch.setenv(compiled.LIMIT, limit)
        assert compiled.first_answer("quicker", lambda answer=answer: answer) == answer


def test_of_two_at_once_the_first_counts(cache) -> None:
    cache.mkdir()

    def overtaken() -> bool:
        assert compiled.first_answer("quicker", lambda: True)
        return False

    assert compiled.first_answer("quicker", overtaken)


def test_an_answer_that_cannot_be_kept_is_still_one(cache) -> None:
    cache.write_text("a file where the directory would be")
    assert compiled.first_answer("quicker", lambda: True)
    assert not compiled.first_answer("quicker", lambda: False)


def test_an_answer_cut_short_is_found_again(cache) -> None:
    cache.mkdir()
    compiled.first_answer("quicker", lambda: True)
    (kept,) = cache.iterdir()
    kept.write_text("")
    assert not compiled.first_answer("quicker", lambda: False)
