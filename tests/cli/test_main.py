"""The front door: help, errors and exit codes."""

import os
import re
import subprocess
import sys

import pytest

from gymlab.cli import doctor
from gymlab.cli.main import COMMANDS, main
from gymlab.errors import GymlabError


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from gymlab.cli.main import main; import gymlab.cli.main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'gymnasium', 'hydra', 'omegaconf', 'pydantic', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_imports_no_torch_and_has_examples(name):
    code = (
        "import sys; from gymlab.cli.main import main\n"
        f"try:\n    main(['{name}', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'gymnasium', 'hydra'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert re.search(rf"examples:\n  gymlab {name}", shown)


def test_help_tells_commands_and_exit_codes(cli):
    shown = cli()
    assert shown.code == 0
    for name, text in COMMANDS.items():
        assert f"{name:<10}{text}" in shown.out
    assert "exit codes:" in shown.out
    assert "130" in shown.out


def test_version():
    from gymlab import __version__

    shown = subprocess.run([sys.executable, "-m", "gymlab", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"gymlab {__version__}\n"


def test_an_unknown_command_names_the_nearest(cli):
    shown = cli("trian")
    assert shown.code == 2
    assert "Unknown command 'trian'. Did you mean 'train'?" in shown.err
    assert "Traceback" not in shown.err


def test_an_unknown_option_names_the_nearest(cli):
    shown = cli("train", "--max-env-step", "5")
    assert shown.code == 2
    assert "'--max-env-steps'" in shown.err
    assert "`gymlab train --help`" in shown.err


def test_an_unknown_choice_names_the_nearest(cli):
    shown = cli("bench", "pppo")
    assert shown.code == 2
    assert "Did you mean 'ppo'?" in shown.err


@pytest.mark.parametrize(("error", "code"), [(GymlabError("the [bold]fix[/] is here"), 2), (KeyboardInterrupt(), 130)])
def test_errors_become_exit_codes(cli, monkeypatch, error, code):
    def fail(arguments):
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    shown = cli("doctor")
    assert shown.code == code
    assert str(error) in shown.err
    assert shown.out == ""


def test_an_error_of_ours_is_not_hidden(monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gymlab", "list", "--json"]
    process = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    os.close(writing)
    assert process.returncode == 141
    assert process.stderr == ""
