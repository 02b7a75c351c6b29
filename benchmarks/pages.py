"""Rewrite what is generated in README.md and docs/: the table of results, the picture of a trained agent, the reference of settings and wrappers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from gymlab.config import describe_fields
from gymlab.config.budgets import BY_ALGORITHM, DEFAULTS, REPLAY
from gymlab.config.effects import idle_places
from gymlab.config.schema import Config
from gymlab.engine.workflow import find_workflow, workflow_names
from gymlab.envs.wrappers import EnvWrapperRegistry
from gymlab.metrics.video import to_gif

ROOT = Path(__file__).parents[1]
VERIFIED = ROOT / "runs" / "verify"
SHOWN = {"cartpole.gif": "cartpole-v1-ppo-s0", "lunarlander.gif": "lunarlander-v3-ppo-s0"}
"""Pictures of the README by the run whose final video they are made from."""


def main() -> int:
    """Write every generated part; what cannot be made yet (no verified run) is said and left as it is."""
    write_reference()
    table = re.search(
        r"^\| experiment.*?(?=\n\n)", (ROOT / "docs" / "results.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert table is not None, "docs/results.md holds no table; run `make verify` first"
    fill(ROOT / "README.md", "results", table[0])
    fill(ROOT / "README.md", "speed", speed_table((ROOT / "docs" / "benchmarks.md").read_text()))
    for picture, run in SHOWN.items():
        video = VERIFIED / run / "videos" / "final.mp4"
        if video.exists():
            to_gif(video, ROOT / "docs" / "images" / picture, width=300)
        else:
            print(f"{video} is not there: {picture} stays as it is; `make verify` trains it")
    return 0


def speed_table(page: str) -> str:
    """The ratios of docs/benchmarks.md, one line a setting, with the range over repeats; under them when and where they were measured."""
    lines = ["| setting | gymlab | stable-baselines3 | ratio | range over repeats |", "|---|---|---|---|---|"]
    for setting, section in re.findall(
        r"^### CartPole-v1, PPO, ([^\n]+)\n(.*?)(?=^### )", page, re.DOTALL | re.MULTILINE
    ):
        cells = {
            row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")]
            for row in section.splitlines()
            if row.startswith("| ")
        }
        own, peer = cells["gymlab"], cells["stable-baselines3"]
        lines.append(f"| {setting} | {own[3]} env steps/s | {peer[3]} | **{own[5]}** | {own[7]} |")
    measured = re.search(
        r"^Written by `gymlab bench ppo` on (\S+), commit (\w+)[^\n]*\nMachine: ([^\n]+)", page, re.MULTILINE
    )
    assert measured is not None, "docs/benchmarks.md does not say when and where `gymlab bench ppo` was run"
    return "\n".join([*lines, "", f"Measured on {measured[1]}, commit {measured[2]}: {measured[3]}"])


def fill(page: Path, name: str, text: str) -> None:
    """Replace what stands between the page's two markers."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    content = page.read_text()
    if begin not in content or end not in content:
        raise SystemExit(f"{page} has no markers {begin} ... {end}")
    head, rest = content.split(begin, 1)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


def write_reference() -> None:
    """docs/reference.md: every setting and wrapper with type, default and meaning, from signatures and docstrings."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs` from the config classes.",
        "",
        "**Effect on** says for which algorithms, and where, a setting does something. It comes from the declaration by which a config is "
        "checked: what is set where it does nothing is refused by name, or told in a line where nobody could help it. "
        "`python -m benchmarks.honesty` changes every setting of every algorithm and compares what comes out: [honesty.md](honesty.md).",
        "",
        "## Every experiment",
        "",
        *rows(Config, effect_on_all),
    ]
    for name in workflow_names():
        schema = find_workflow(name).Config
        lines += ["", f"## {name}", "", *rows(schema, partial(effect_on_one, schema), without=set(Config.model_fields))]
    lines += [
        "",
        "## Default budgets",
        "",
        "An experiment that names no end (`max_env_steps`, `max_epochs`, phases that all have a duration) gets a budget, which the run says "
        "first; `max_env_steps: null` leaves it without one. A run of which nothing is said about evaluation is evaluated ten times on the way; "
        "`eval_freq_epochs: null` or 0 turns that off.",
        "",
        *budget_rows(),
        "",
        "## Wrappers",
        "",
        "For `env_wrappers`, in order: `{id: FrameSkipWrapper, skip: 4}`. A class of your own is registered by "
        "`EnvWrapperRegistry.register` in a module that `--plugin` names.",
        "",
        *wrapper_rows(),
    ]
    (ROOT / "docs" / "reference.md").write_text("\n".join(lines) + "\n")


def budget_rows() -> list[str]:
    """The default budgets by kind of environment and algorithm."""
    replay = ", ".join(f"`{name}`" for name in REPLAY)
    found = [
        f"| environments | `ppo`, `reinforce`, algorithms of your own | {replay} | episodes of an evaluation |",
        "|---|---|---|---|",
    ]
    for kind, default in DEFAULTS.items():
        found.append(f"| {kind} | {default.on_policy:,} | {default.replay:,} | {default.episodes} |")
    same = ", ".join(f"`{name}` {steps:,}" for name, steps in BY_ALGORITHM.items())
    return [*found, "", f"On all environments: {same}."]


def wrapper_rows() -> list[str]:
    """A table of the registered wrappers: arguments from the signature, meaning from the docstring's first paragraph."""
    found = ["| wrapper | arguments | what it does |", "|---|---|---|"]
    for name in EnvWrapperRegistry:
        wrapper = EnvWrapperRegistry.get(name)
        # The first parameter is the environment; the context is given by us.
        parameters = list(inspect.signature(wrapper).parameters.values())[1:]
        arguments = ", ".join(_argument(one) for one in parameters if one.name != "context")
        meaning = " ".join(inspect.cleandoc(wrapper.__doc__ or "").split("\n\n")[0].split())
        cells = (f"`{name}`", arguments or "none", meaning)
        found.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return found


def _argument(parameter: inspect.Parameter) -> str:
    """A parameter as a config writes it."""
    if parameter.default is inspect.Parameter.empty:
        return f"`{parameter.name}` (required)"
    return f"`{parameter.name}={parameter.default!r}`"


def effect_on_one(schema: type[Config], name: str) -> str:
    """Where a setting of an algorithm has an effect."""
    places = idle_places(schema, name)
    if places is None:
        return "nothing"
    return f"all, but not {'; nor '.join(places)}" if places else "all"


def effect_on_all(name: str) -> str:
    """For which algorithms, and where, a setting that all have does something."""
    common = idle_places(Config, name) or []
    own = {algorithm: idle_places(find_workflow(algorithm).Config, name) for algorithm in workflow_names()}
    without = [algorithm for algorithm, places in own.items() if places is None]
    text = f"all but {', '.join(without)}" if without else "all"
    text += f", but not {'; nor '.join(common)}" if common else ""
    apart: dict[str, list[str]] = {}
    for algorithm, places in own.items():
        for place in places or []:
            if place not in common:
                apart.setdefault(place, []).append(algorithm)
    return "".join([text, *(f"; {', '.join(algorithms)}: not {place}" for place, algorithms in apart.items())])


def rows(schema: type[Config], effect_on: Callable[[str], str], without: Collection[str] = ()) -> list[str]:
    """A table of the schema's own fields."""
    found = ["| setting | type | default | meaning | effect on |", "|---|---|---|---|---|"]
    for field in describe_fields(schema):
        if field.name not in without:
            cells = (
                f"`{field.name}`",
                field.type,
                "required" if field.required else f"`{field.default}`",
                field.description,
                effect_on(field.name),
            )
            found.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return found


if __name__ == "__main__":
    sys.exit(main())
