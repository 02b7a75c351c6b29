"""The commit that a run records is gymlab's own."""

import subprocess

import pytest

from gymlab.engine.source import source_commit


def git(directory, *arguments):
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", "-C", directory, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository with the package, and the package."""
    package = tmp_path / "project" / "gymlab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(package.parent, "init", "-q")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-q", "-m", "first")
    return package.parent, package


def test_a_checkout_has_its_commit_wherever_the_user_stands(checkout, tmp_path, monkeypatch):
    project, package = checkout
    elsewhere = tmp_path / "users"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    commit = source_commit(package)
    monkeypatch.delenv("GIT_DIR")
    assert commit == git(project, "rev-parse", "--short=12", "HEAD")


def test_a_change_of_the_package_marks_it_and_one_beside_it_does_not(checkout):
    project, package = checkout
    commit = source_commit(package)
    (project / "notes.txt").write_text("mine")
    assert source_commit(package) == commit
    (package / "new.py").write_text("")
    assert source_commit(package) == f"{commit}+dirty"


def test_a_package_in_the_virtual_environment_of_a_project_has_not_the_projects_commit(checkout):
    project, _ = checkout
    installed = project / ".venv" / "site-packages" / "gymlab"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert source_commit(installed) is None
