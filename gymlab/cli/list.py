"""List environments with their variants, and algorithms. `gymlab runs` lists runs."""

from __future__ import annotations

import argparse
import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from rich.text import Text

    from gymlab.config.discover import ExperimentEntry

USAGE = "gymlab list [environments|composed|algorithms] [WORD ...] [options]"
EXAMPLES = """  gymlab list                          everything
  gymlab list cart                     whatever has `cart` in its name
  gymlab list environments lunar --json"""

WIDE = 110
"""Width from which on it is told what an environment is about."""
SECTIONS = ("environments", "composed", "algorithms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help=f"a section ({', '.join(SECTIONS)}), or what names must contain"
    )
    parser.add_argument(
        "--config-dir", metavar="DIR", help="a conf directory that lies on top of ./conf and the shipped one"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the chosen sections, filtered by the other words."""
    if "runs" in arguments.words:
        raise GymlabError("Runs are listed by `gymlab runs`, which takes words too: `gymlab runs cartpole`.")
    chosen = [word for word in arguments.words if word in SECTIONS]
    words = [word.lower() for word in arguments.words if word not in SECTIONS]
    gather: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "environments": lambda: environments(arguments.config_dir),
        "composed": lambda: composed(arguments.config_dir),
        "algorithms": algorithms,
    }
    found = {section: _matching(gather[section](), words) for section in chosen or SECTIONS}
    return _show(found, as_json=arguments.json)


def show_environments(word: str, config_dir: str | None, *, as_json: bool) -> int:
    """`gymlab train --list-envs WORD`."""
    return _show({"environments": _matching(environments(config_dir), [word.lower()])}, as_json=as_json)


def environments(config_dir: str | None = None) -> list[dict[str, Any]]:
    """Environments that have experiments, by family and name."""
    from gymlab.config import discover
    from gymlab.engine.workflow import known_algorithms

    found = []
    for entry in discover(Path(config_dir) if config_dir else None, known_algorithms()):
        found.append(
            {
                "name": entry.name,
                "id": entry.env_id,
                "family": entry.family,
                "description": entry.description,
                "threshold": _threshold(entry.path, entry.env_id),
                "variants": {variant.name: variant.description for variant in entry.variants},
                "experiments": entry.experiments,
                **_installation(entry),
            }
        )
    return sorted(found, key=lambda entry: (entry["family"], entry["name"]))


def composed(config_dir: str | None = None) -> list[dict[str, Any]]:
    """Experiments that are put together from config groups."""
    from gymlab.config import composed_experiments

    names = composed_experiments(Path(config_dir) if config_dir else None)
    return [{"name": name, "experiment": f"experiment={name}"} for name in names]


def algorithms() -> list[dict[str, Any]]:
    """Algorithms by name, with the first line of their file."""
    from gymlab.engine.workflow import workflow_names

    return [{"name": name, "description": _first_line(f"gymlab.workflows.{name}")} for name in workflow_names()]


def _threshold(path: Path, env_id: str) -> float | None:
    """The return that means solved: as the environment's file says, else as it was registered."""
    import gymnasium

    from gymlab.config.environment_files import EnvironmentFile
    from gymlab.config.yaml_reader import read_yaml

    base = EnvironmentFile(path, read_yaml(path)).base
    returns = (base.get("spec") or {}).get("returns") or {}
    registered = gymnasium.registry.get(env_id)
    for value in (
        base.get("reward_threshold"),
        returns.get("threshold_solved"),
        registered and registered.reward_threshold,
    ):
        if isinstance(value, int | float):
            return float(value)
    return None


def _installation(entry: ExperimentEntry) -> dict[str, Any]:
    """What an environment needs installed, whether it is, the pip lines if not, and variants that need more than that."""
    from gymlab.envs.extras import needs_of

    needs = needs_of(entry.env_id)
    by_variant = {variant.name: needs_of(entry.env_id, variant.obs_type) for variant in entry.variants}
    more = {name: own for name, own in by_variant.items() if own is not None and own != needs}
    return {
        "needs": None if needs is None else needs.name,
        "installed": needs is None or not needs.missing,
        "install": [] if needs is None or not needs.missing else list(needs.pip_lines),
        "variants_need": {
            name: {
                "needs": own.name,
                "installed": not own.missing,
                "install": list(own.pip_lines if own.missing else ()),
            }
            for name, own in more.items()
        },
    }


def _first_line(module: str) -> str:
    """First line of a module's docstring, read without importing the module (and torch with it)."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return "from a plugin"
    documentation = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return documentation.partition("\n")[0]


def _matching(entries: list[dict[str, Any]], words: list[str]) -> list[dict[str, Any]]:
    """Entries in whose names, variants or family every word occurs."""
    searched = ("id", "name", "family", "experiment", "experiments")
    return [
        entry
        for entry in entries
        if all(word in " ".join(str(entry.get(key, "")) for key in searched).lower() for word in words)
    ]


def _show(found: dict[str, list[dict[str, Any]]], *, as_json: bool) -> int:
    from rich.text import Text

    from gymlab.cli.output import screen, show_json

    if as_json:
        show_json(found)
        return 0 if any(found.values()) else 1
    console = screen()
    tables: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
        "environments": lambda entries: _environment_table(entries, about=console.width >= WIDE),
        "composed": _composed_table,
        "algorithms": _algorithm_table,
    }
    shown = {section: entries for section, entries in found.items() if entries}
    for section, entries in shown.items():
        console.print(tables[section](entries))
        for name, lines in _missing(entries).items() if section == "environments" else ():
            line = Text.assemble((f"✗ {name} is not installed: ", "yellow"), (" && ".join(lines), "bold"))
            console.print(line, soft_wrap=True)
        console.print()
    if not shown:
        console.print("nothing of that name; `gymlab list` shows everything")
    return 0 if shown else 1


def _environment_table(entries: list[dict[str, Any]], *, about: bool) -> Any:
    """`about` adds what the task is, which needs a wide screen."""
    from rich.text import Text

    from gymlab.cli.output import bold, one_line, table

    columns = ("family", "environment", "variants", "needs", "goal", *(["about"] if about else []))
    made = table("environments", *columns, right=("goal",), whole=("family", "environment", "needs", "goal"))
    made.columns[2].min_width = max(len(name) for entry in entries for name in entry["variants"]) + 1
    family = None
    for entry in entries:
        threshold = "" if entry["threshold"] is None else f"{entry['threshold']:g}"
        shown = entry["family"] if entry["family"] != family else ""
        needs = "" if entry["needs"] is None else Text.assemble(entry["needs"], *_mark(entry["installed"]))
        variants = Text(", ").join(_variant(name, entry["variants_need"].get(name)) for name in entry["variants"])
        described = [one_line(entry["description"])] if about else []
        made.add_row(shown, bold(entry["name"]), variants, needs, threshold, *described)
        family = entry["family"]
    return made


def _mark(installed: bool) -> list[tuple[str, str]]:
    return [(" ✓", "green") if installed else (" ✗", "red")]


def _variant(name: str, more: dict[str, Any] | None) -> Text:
    """A variant; one that needs more than its environment says what, and whether it is there."""
    from rich.text import Text

    return Text(name) if more is None else Text.assemble(f"{name} (", more["needs"], *_mark(more["installed"]), ")")


def _missing(entries: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Pip lines of everything that the environments shown need and that is not there, by name."""
    wanted = [part for entry in entries for part in (entry, *entry["variants_need"].values())]
    return {part["needs"]: part["install"] for part in wanted if part["install"]}


def _composed_table(entries: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    from gymlab.cli.output import table

    made = table("composed experiments", "to train one")
    for entry in entries:
        made.add_row(Text.assemble("gymlab train ", (entry["experiment"], "bold")))
    return made


def _algorithm_table(entries: list[dict[str, Any]]) -> Any:
    from gymlab.cli.output import bold, one_line, table

    made = table("algorithms", "name", "about", whole=("name",))
    for entry in entries:
        made.add_row(bold(entry["name"]), one_line(entry["description"]))
    return made
