"""A config directory of the user's own, and a way to load YAML written in a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from config_helpers import load_experiment


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests run where there is no ./conf."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A config directory of the user's own."""
    directory = tmp_path / "conf"
    (directory / "environments").mkdir(parents=True)
    return directory


@pytest.fixture
def write(conf: Path) -> Callable[..., Path]:
    """Put a file into the user's config directory."""

    def put(name: str, text: str) -> Path:
        path = conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return put


@pytest.fixture
def load_variant(conf: Path, write: Callable[..., Path]) -> Callable[..., Any]:
    """Load one PPO variant from a few lines of YAML."""

    def loaded(fields: str, *overrides: str, **options: Any) -> Any:
        lines = "\n".join(f"  {line}" for line in fields.strip().splitlines())
        write("environments/CartPole-v1.yaml", f"env_id: CartPole-v1\nppo:\n  n_envs: 8\n{lines}\n")
        return load_experiment("CartPole-v1:ppo", *overrides, config_dir=conf, **options).config

    return loaded
