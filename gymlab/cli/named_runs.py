"""Runs that a command line names: whether they are there, and the whole command where one needs a module that was not given."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence

from gymlab.errors import GymlabError

MODULE = re.compile(r"[A-Za-z_][\w./-]*")
"""A plugin as people write it: a dotted name, or a file; a run may be somebody else's and write anything."""


def look_up(references: Sequence[str], runs_dir: str | None) -> None:
    """Raise for a run that is not there: before a command imports what takes seconds."""
    from gymlab.engine.run import find_run, runs_directory

    for reference in references:
        find_run(reference, runs_directory(runs_dir))


def advice(arguments: argparse.Namespace, runs: Sequence[str], command: Sequence[str]) -> str:
    """What to type, with each `--plugin` that the run was trained with; empty where no run is meant or it names none."""
    given = set(getattr(arguments, "plugin", ()))
    runs_dir = getattr(arguments, "runs_dir", None)
    recorded = [plugin for reference in runs for plugin in _recorded(reference, runs_dir)]
    missing = [plugin for plugin in dict.fromkeys(recorded) if plugin not in given]
    if not missing:
        return ""
    options = [word for plugin in missing for word in ("--plugin", plugin)]
    names = " and ".join(missing)
    return (
        f"\nThe run was trained with the module {names}; nothing is imported because a run names it. If you trust it:"
        f"\n  {shlex.join([*command, *options])}"
    )


def _recorded(reference: str, runs_dir: str | None) -> Iterator[str]:
    from gymlab.engine.run import find_run, runs_directory

    try:
        run, _ = find_run(reference, runs_directory(runs_dir))
        plugins = run.record.get("plugins") or []
        env_id = str(run.config_data.get("env_id") or "")
    except GymlabError:
        return
    module, colon, _ = env_id.partition(":")
    yield from (plugin for plugin in [*([module] if colon else []), *plugins] if MODULE.fullmatch(plugin))
