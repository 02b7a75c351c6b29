"""Modules of the user's own, imported so that what they register is known."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gymlab.envs.contract import contained
from gymlab.envs.crash import describe_crash
from gymlab.envs.origin import registers
from gymlab.errors import ConfigError, GymlabError


def load_plugins(modules: Sequence[str]) -> None:
    """Import the user's own modules (from the command line or a call, never from a config) so that what they register is known."""
    for name in modules:
        path = Path(name)
        directory = str(path.parent.resolve()) if path.suffix == ".py" else os.getcwd()
        if directory not in sys.path:
            sys.path.insert(0, directory)
        module = path.stem if path.suffix == ".py" else name
        try:
            with contained(), registers(name):
                importlib.import_module(module)
        except GymlabError:
            raise
        except ModuleNotFoundError as error:
            if error.name == module or module.startswith(f"{error.name}."):
                raise ConfigError(
                    f"Plugin {name!r} cannot be imported: {error}. Give a module that Python finds from here, e.g. --plugin my_algo."
                ) from error
            raise ConfigError(f"{describe_crash(error)}\nPlugin {name!r} needs a module that is not there.") from error
        except Exception as error:  # A module may raise anything.
            raise ConfigError(f"{describe_crash(error)}\nPlugin {name!r} cannot be imported.") from error
