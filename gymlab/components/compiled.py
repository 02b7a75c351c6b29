"""Kernels in C, compiled on the machine that runs them when they are first needed, and kept in the user's cache.

Without a compiler, on processors of other kinds, or with GYMLAB_KERNELS=0 there are none, and what would use them leaves the work to torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from gymlab.user_cache import in_user_cache

logger = logging.getLogger(__name__)

FLAGS = ("-O3", "-shared", "-fPIC", "-mfma")
REGISTERS = {"AVX2": ("-mavx2",), "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")}
"""Flags by what torch found the processor to have."""
COMPILERS = ("cc", "gcc", "clang")
OFF = "GYMLAB_KERNELS"
LIMIT = "ONEDNN_MAX_CPU_ISA"


def compiles() -> bool:
    """Whether kernels are compiled here and used."""
    registers = REGISTERS.get(torch.backends.cpu.get_cpu_capability())
    return os.environ.get(OFF) != "0" and find_compiler() is not None and registers is not None


def kernels(name: str) -> ctypes.CDLL | None:
    """The functions of `name`.c beside this file; None: torch is to do the work."""
    compiler, registers = find_compiler(), REGISTERS.get(torch.backends.cpu.get_cpu_capability())
    if os.environ.get(OFF) == "0" or compiler is None or registers is None:
        return None
    source, flags = Path(__file__).with_name(f"{name}.c"), FLAGS + registers
    try:
        library = in_user_cache(f"{name}-{_digest(' '.join(flags), source.read_text())}.so")
        if not library.exists():
            compile_library([*compiler, *flags], source, library)
        return ctypes.CDLL(str(library))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or error
        logger.warning("%s could not be compiled, torch computes instead: %s", source.name, told)
        return None


def find_compiler() -> list[str] | None:
    """The command of a C compiler: $CC, or what is there."""
    wanted = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [[name] for name in COMPILERS]
    return next((command for command in wanted if shutil.which(command[0])), None)


def compile_library(command: list[str], source: Path, library: Path) -> None:
    """Make `library` of a source."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / library.name
        subprocess.run([*command, str(source), "-o", str(made)], check=True, capture_output=True, text=True, timeout=60)
        # In one step: another process may want it at the same time.
        made.replace(library)


def first_answer(question: str, find: Callable[[], bool]) -> bool:
    """What came out when this torch was first asked on a processor of this name: what is measured may come out otherwise the next time,
    and a run that goes on is to compute as it began."""
    kept = in_user_cache(f"{question}-{_digest(_processor(), torch.__version__)}.txt")
    if (known := _read_answer(kept)) is not None:
        return known
    answer = find()
    with suppress(OSError), kept.open("x", encoding="utf-8") as file:
        file.write("yes" if answer else "no")
    # Another process may have been the first.
    known = _read_answer(kept)
    return answer if known is None else known


def _read_answer(kept: Path) -> bool | None:
    with suppress(OSError):
        return {"yes": True, "no": False}.get(kept.read_text(encoding="utf-8"))
    return None


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Its name and instructions, as far as the system tells, and the ones that torch's convolutions are limited to: the same name may come
    with fewer of them on a virtual machine."""
    limit = os.environ.get(LIMIT, "")
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = [next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags")]
        return "\n".join([*found, limit])
    return f"{platform.processor()}\n{limit}"
