"""Say what a training would do before it does it, or what can be set and what it means. Nothing is written."""

from __future__ import annotations

import argparse
from typing import Any

from gymlab.cli.arguments import add_experiment, add_json, resolve_keywords
from gymlab.errors import GymlabError

IDENTITY = ("env_id", "algo_id", "variant", "project_id", "description", "spec")
"""Settings that say what is trained rather than how."""
WORTH_TELLING = 0.95
"""A share of the time that is no gain any more."""
USAGE = "gymlab describe [EXPERIMENT] [key=value ...] [options]"
EXAMPLES = """  gymlab describe CartPole-v1:ppo
  gymlab describe CartPole-v1:ppo n_envs=64 batch_size=0.25
  gymlab describe Acrobot-v1 --algo ppo --json
  gymlab describe --fields ppo                    every setting of an algorithm, with type, default and meaning"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_experiment(parser)
    parser.add_argument("--fields", metavar="ALGORITHM", help="print every setting of an algorithm, and exit")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe an experiment, or the settings of an algorithm."""
    if arguments.fields is not None:
        if arguments.words or arguments.config_id:
            raise GymlabError(f"--fields {arguments.fields} describes an algorithm; leave the experiment out.")
        return _describe_fields(arguments.fields, arguments.plugin, as_json=arguments.json)
    from gymlab.api import resolve
    from gymlab.cli.output import output_kept_clean, show_json, show_notices
    from gymlab.cli.preview import preview

    with output_kept_clean():
        loaded = resolve(**resolve_keywords(arguments))
        described = preview(loaded.config)
    show_notices(loaded.notices)
    if arguments.json:
        show_json({**described, "sources": loaded.sources, "notices": loaded.notices})
    else:
        _show(described)
    return 0


def _describe_fields(algorithm: str, plugins: list[str], *, as_json: bool) -> int:
    from dataclasses import asdict

    from gymlab.api import load_plugins
    from gymlab.cli.output import bold, screen, show_json, table
    from gymlab.config import describe_fields
    from gymlab.engine.workflow import find_workflow

    load_plugins(plugins)
    fields = describe_fields(find_workflow(algorithm).Config)
    if as_json:
        show_json([asdict(field) for field in fields])
        return 0
    made = table(f"settings of {algorithm}", "setting", "type", "default", "meaning")
    for field in fields:
        made.add_row(
            bold(field.name),
            field.type,
            "" if field.required else _text(field.default),
            field.description,
        )
    screen().print(made)
    return 0


def _show(described: dict[str, Any]) -> None:
    from rich.text import Text

    from gymlab.cli.output import screen, size, table

    console = screen()
    environment, memory = described["environment"], described["memory"]
    head = table(described["experiment"], "", "")
    head.show_header = False
    head.add_row("environment", f"{environment['id']}, {environment['n_envs']} × {environment['stepped_by']}")
    head.add_row("observation", Text(environment["observation_space"]))
    if environment["flattened_from"]:
        head.add_row("flattened from", environment["flattened_from"])
    if environment["notice"]:
        head.add_row("notice", Text(environment["notice"], style="yellow"))
    head.add_row("action", Text(environment["action_space"]))
    threshold = environment["threshold"]
    head.add_row("solved at", "no threshold known" if threshold is None else f"a mean return of {threshold:g}")
    for name, part in described["modules"].items():
        if not part["parameters"]:
            continue
        parts = ", ".join(f"{child} {count:,}" for child, count in part["parts"].items())
        head.add_row(f"{name} parameters", f"{part['parameters']:,}" + (f" ({parts})" if parts else ""))
    for name, value in described["derived"].items():
        head.add_row(name.replace("_", " "), Text(_text(value)))
    head.add_row("budget", _budget_text(described["budget"]))
    head.add_row("evaluation", described["evaluation"]["plan"])
    head.add_row("precision", _precision_text(described["precision"]))
    parts = ", ".join(f"{name} {size(count)}" for name, count in memory.items() if name != "total")
    head.add_row("memory", f"{size(memory['total'])} ({parts}); the process {size(described['process_bytes'])}")
    for phase in described["phases"]:
        head.add_row(f"phase {phase['name']}", Text(_phase_text(phase)))
    for name, schedule in described["schedules"].items():
        head.add_row(
            name, f"{schedule['line']}  {schedule['values'][0]:g} → {schedule['values'][-1]:g} ({schedule['shape']})"
        )
    console.print(head)
    console.print()
    _show_settings(console, described["settings"])


def _show_settings(console: Any, settings: dict[str, dict[str, Any]]) -> None:
    """Settings that differ from the defaults, one a line; the others in one dim paragraph."""
    from rich.text import Text

    from gymlab.cli.output import bold, table

    made = table("settings that differ from the defaults", "setting", "value", "default")
    for name, setting in settings.items():
        if setting["changed"] and name not in IDENTITY:
            made.add_row(
                bold(name),
                Text(_text(setting["value"]), style="cyan"),
                Text(_text(setting["default"]), style="dim"),
            )
    console.print(made)
    others = ", ".join(
        f"{name}={_text(setting['value'])}" for name, setting in settings.items() if not setting["changed"]
    )
    console.print()
    console.print(Text("as by default: " + others, style="dim"))


def _budget_text(budget: dict[str, Any]) -> str:
    if budget["env_steps"] is None:
        return "none: the curriculum or Ctrl-C ends it"
    text = f"{budget['env_steps']:,} env steps"
    for unit in ("epochs", "updates"):
        if budget[unit] is not None:
            text += f", {budget[unit]:,} {unit}"
    return text


def _precision_text(precision: dict[str, Any]) -> str:
    """The number format, and what the other one does to a matrix product where the processor has it."""
    from gymlab.cli.preview import MATMUL_SIZE as size

    share = precision["bf16_matmul_share"]
    if share is None:
        return str(precision["format"])
    gain = f"takes {share:g} of the time" if share < WORTH_TELLING else "gains nothing"
    return (
        f"{precision['format']}; this processor multiplies in bfloat16: with precision=bf16-mixed a product of {size} x {size} {gain} "
        "(measured now; small networks gain less)"
    )


def _phase_text(phase: dict[str, Any]) -> str:
    hooks = [hook["name"] + (f" ×{hook['times']}" if hook["times"] > 1 else "") for hook in phase["hooks"]]
    text = f"{phase['type']}: {', '.join(hooks)}"
    lasts = [
        f"{phase[f'duration_{unit}']:,} {unit}" for unit in ("steps", "updates", "cycles") if phase[f"duration_{unit}"]
    ]
    return f"{text}; for {' or '.join(lasts)}" if lasts else text


def _text(value: Any) -> str:
    """A value as it would be written in YAML."""
    if isinstance(value, str):
        return value or "''"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, dict) and {"start", "end", "schedule"} <= value.keys():
        return f"{value['start']:g} → {value['end']:g} ({value['schedule']})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
