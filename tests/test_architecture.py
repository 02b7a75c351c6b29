"""Imports go one way, files stay small, and nothing in the package can run a stranger's code."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gymlab"
SOURCES = sorted(PACKAGE.rglob("*.py"))

LEAVES = {"errors", "plain_files", "registry", "user_cache"}
ALLOWED = {
    "errors": set(),
    "plain_files": {"errors"},
    "registry": {"errors"},
    "user_cache": set(),
    "config": LEAVES,
    "metrics": LEAVES | {"config"},
    "envs": LEAVES | {"config"},
    "components": LEAVES | {"config", "envs"},
    "buffers": LEAVES | {"config", "envs", "components"},
    "engine": LEAVES | {"config", "metrics", "envs", "components", "buffers"},
    "workflows": LEAVES | {"config", "envs", "components", "buffers", "engine"},
    "api": LEAVES | {"config", "engine"},
    "inspector": LEAVES | {"api", "config", "metrics", "envs", "components", "engine"},
    "bench": None,
    "cli": None,
}
"""What each room may import; None: everything."""


def room_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def gymlab_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gymlab":
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gymlab")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    room = room_of(path)
    allowed = ALLOWED.get(room, set() if room not in ("__init__", "__main__") else None)
    if allowed is None:
        return
    for module in gymlab_imports(path):
        target = module.split(".")[1] if "." in module else "gymlab"
        assert target == room or target in allowed, f"{path.name} in {room} imports {module}"


def test_a_workflow_knows_the_engine_only_by_its_contract():
    for path in (PACKAGE / "workflows").glob("*.py"):
        engine = {module for module in gymlab_imports(path) if module.startswith("gymlab.engine")}
        assert engine <= {"gymlab.engine.workflow"}, path.name


def test_the_engine_and_the_command_line_name_no_algorithm():
    algorithms = [path.stem for path in (PACKAGE / "workflows").glob("*.py") if path.stem != "__init__"]
    for room in ("engine", "envs", "metrics"):
        for path in (PACKAGE / room).rglob("*.py"):
            for module in gymlab_imports(path):
                assert not module.startswith("gymlab.workflows"), path
            for algorithm in algorithms:
                assert f'"{algorithm}"' not in path.read_text(), f"{path} names {algorithm}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 520


UNSAFE = re.compile(
    r"weights_only=False|\bpickle\b|cloudpickle|\bdill\b|allow_pickle=True|yaml\.load\(|yaml\.unsafe|(?<![.\w])eval\(|(?<![.\w])exec\("
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_way_for_a_file_to_run_code(path):
    assert not UNSAFE.search(ast.unparse(_without_docstrings(ast.parse(path.read_text()))))


def _without_docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


def test_the_command_line_starts_without_heavy_imports():
    code = "import sys, gymlab, gymlab.cli.main; print([m for m in ('torch', 'gymnasium', 'hydra', 'matplotlib') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
