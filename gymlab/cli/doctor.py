"""Say what is installed, what is missing and how to get it, and whether a training can write its runs here."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gymlab.cli.arguments import add_json, add_runs_directory
from gymlab.cli.extras import extras, package_version, version_of_module

if TYPE_CHECKING:
    from gymlab.envs.extras import Needs

EXAMPLES = """  gymlab doctor
  gymlab doctor --json
  gymlab doctor --runs-dir /data/runs           can runs be written there?"""

CORE = ("gymnasium", "lightning-fabric", "hydra-core", "pydantic", "safetensors", "rich", "matplotlib")
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: str
    """ok, missing (an option is not there) or broken (gymlab does not work without it)."""
    detail: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at everything; 0 when a training would work."""
    from gymlab.cli.output import output_kept_clean, show_json

    with output_kept_clean():
        findings = list(examine(arguments.runs_dir))
    works = all(finding.state != "broken" for finding in findings)
    if arguments.json:
        show_json({"works": works, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings, works)
    return 0 if works else 1


def examine(runs_dir: str | None = None) -> Iterator[Finding]:
    """All findings, the core first."""
    from gymlab.envs.extras import NEEDS

    yield _python()
    yield _torch()
    for package in CORE:
        yield _package(package)
    yield _ffmpeg()
    yield _kernels()
    yield _runs(runs_dir)
    yield _git()
    yield _display()
    if package_version("mujoco") is not None:
        yield _gl()
    for needs in NEEDS.values():
        yield _family(needs)
    for extra in extras(besides=NEEDS):
        versions = ", ".join(f"{name} {number}" for name, number in extra.installed.items())
        if extra.missing:
            yield Finding(extra.name, "missing", f"without {', '.join(extra.missing)}", extra.pip_line)
        else:
            yield Finding(extra.name, "ok", versions)


def _family(needs: Needs) -> Finding:
    """What some environments need; nothing is imported."""
    if needs.missing:
        lines = "\n".join(needs.pip_lines)
        return Finding(needs.requirement, "missing", f"without {', '.join(needs.missing)}", lines)
    versions = ", ".join(f"{name} {version_of_module(name)}" for name in needs.modules)
    return Finding(needs.requirement, "ok", versions)


def _python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "broken", detail, "install Python {}.{} or newer".format(*OLDEST_PYTHON))
    return Finding("python", "ok", detail)


def _torch() -> Finding:
    def describe() -> str:
        import torch

        devices = ["cpu"]
        if torch.cuda.is_available():
            devices += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        if torch.backends.mps.is_available():
            devices.append("mps")
        return f"{torch.__version__}, {torch.get_num_threads()} threads, devices: {', '.join(devices)}"

    return _importable("torch", "torch", describe)


def _package(package: str) -> Finding:
    modules = {"lightning-fabric": "lightning_fabric", "hydra-core": "hydra"}
    return _importable(package, modules.get(package, package), lambda: package_version(package) or "installed")


def _ffmpeg() -> Finding:
    def describe() -> str:
        import imageio_ffmpeg

        return f"{imageio_ffmpeg.get_ffmpeg_version()} (imageio-ffmpeg {imageio_ffmpeg.__version__})"

    return _importable("ffmpeg", "imageio_ffmpeg", describe)


def _kernels() -> Finding:
    """Whether what is written in C is compiled and used here; torch computes the same more slowly."""
    import torch

    from gymlab.components.compiled import OFF, REGISTERS, find_compiler, kernels
    from gymlab.components.winograd import is_wanted

    if os.environ.get(OFF) == "0":
        return Finding("kernels", "ok", f"turned off by {OFF}=0")
    if torch.backends.cpu.get_cpu_capability() not in REGISTERS:
        return Finding("kernels", "ok", "none for this processor, torch computes")
    compiler = find_compiler()
    if compiler is None:
        return Finding("kernels", "missing", "3x3 convolutions are slower", "install a C compiler, such as gcc")
    if kernels("winograd") is None:
        return Finding("kernels", "missing", f"{' '.join(compiler)} does not compile them; 3x3 convolutions are slower")
    chosen = "quicker than torch's" if is_wanted() else "torch's are quicker and used"
    return Finding("kernels", "ok", f"compiled by {' '.join(compiler)}, {chosen}")


def _importable(name: str, module: str, describe: Callable[[], str]) -> Finding:
    """Whether something of the core can be imported and asked for its version."""
    try:
        importlib.import_module(module)
        return Finding(name, "ok", describe())
    except (ImportError, OSError, RuntimeError) as error:
        return Finding(name, "broken", str(error).splitlines()[0], "pip install --force-reinstall gymlab")


def _runs(given: str | None) -> Finding:
    """Whether runs can be written; the directory is not made for the question."""
    from gymlab.engine.run import runs_directory

    directory = runs_directory(given).absolute()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            "runs", "broken", f"{directory} cannot be written", "give another with --runs-dir or GYMLAB_RUNS"
        )
    free = shutil.disk_usage(existing).free / 2**30
    return Finding("runs", "ok", f"{directory}{'' if directory.exists() else ' (will be made)'}, {free:.1f} GB free")


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", "missing", "runs will not record a commit", "install git")
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return Finding("git", "ok", shown)


def _display() -> Finding:
    found = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if found:
        return Finding("display", "ok", "windows can be shown")
    driver = os.environ.get("SDL_VIDEODRIVER")
    return Finding(
        "display",
        "missing",
        f"no windows here{f' (SDL: {driver})' if driver else ''}; videos are recorded all the same",
    )


def _gl() -> Finding:
    """Which GL backend MuJoCo draws with; tried afresh, so that what was installed meanwhile is found."""
    from gymlab.envs.gl import ADVICE, OFF, draws, probe

    given = os.environ.get("MUJOCO_GL")
    if given is not None:
        works = given == OFF or draws(given)
        return Finding(
            "gl", "ok" if works else "missing", f"MUJOCO_GL={given}, {'as set' if works else 'does not draw'}"
        )
    if not sys.platform.startswith("linux"):
        return Finding("gl", "ok", "MuJoCo draws with the system's own")
    found = probe()
    if found == OFF:
        return Finding(
            "gl", "missing", "no videos or pictures of MuJoCo", ADVICE.partition("run ")[2].partition(",")[0]
        )
    return Finding("gl", "ok", f"MuJoCo draws with {found}")


def _show(findings: list[Finding], works: bool) -> None:
    from rich.text import Text

    from gymlab.cli.output import screen, table

    signs = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red")}
    made = table("", "", "", "", "")
    made.title, made.show_header = None, False
    made.columns[-1].no_wrap = True  # A pip line is copied whole.
    for finding in findings:
        sign, colour = signs[finding.state]
        made.add_row(
            Text(sign, style=colour), Text(finding.name), Text(finding.detail), Text(finding.fix, style="bold")
        )
    console = screen()
    console.print(made)
    if works:
        console.print("gymlab works here.", style="green")
    else:
        console.print("gymlab does not work here: put right what is marked ✗.", style="red")
