"""Hold groups of runs against each other: a table with IQM, mean, median and their intervals, a picture and a CSV."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_env_kwargs, add_json, add_plugins, add_runs_directory
from gymlab.errors import GymlabError, did_you_mean

if TYPE_CHECKING:
    from gymlab.engine.registry import RunEntry
    from gymlab.metrics.comparison import ComparedRun, Comparison, GroupResult
    from gymlab.metrics.statistics import Interval

USAGE = "gymlab compare RUN ... [options]"
EXAMPLES = """  gymlab compare 'cartpole-v1-ppo-*' 'cartpole-v1-reinforce-*'    two groups, by experiment
  gymlab compare 'cartpole-*' --group policy_lr                   by a setting of theirs
  gymlab compare 'cartpole-*' --group algorithm --x time --out comparison/
  gymlab compare 'cartpole-*' 'acrobot-*' --group algorithm --normalise
  gymlab compare a b --metric train/roll/ep_rew/mean --json"""

GROUPS = ("experiment", "algorithm", "env")
AXES = {"env_steps": "env steps", "time": "seconds"}
MEASURES = {"iqm": "IQM", "mean": "mean", "median": "median"}
GAP = 2
POOLED_TITLE = "all environments, 0 is chance and 1 is solved"
POOLED = (
    "all environments: IQM and median have bootstrap intervals, which are too narrow for few runs "
    "(of 5 in each environment they hold the true value in 84 to 95% of cases, of 30 in 93 to 98%)"
)
RANDOM_EPISODES = 20
"""Episodes that say what chance scores in an environment whose spec does not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "references", nargs="*", metavar="RUN", help="runs: ID, @last, a directory, or a pattern such as 'cartpole-*'"
    )
    parser.add_argument(
        "--group",
        metavar="KEY",
        help="what the runs of a group have in common: experiment (default), algorithm (default for several "
        "environments), env, or any setting such as policy_lr",
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="what is compared (default: val/roll/ep_rew/mean, the return at evaluations)"
    )
    parser.add_argument("--x", choices=tuple(AXES), default="env_steps", help="the curves' axis (default: env_steps)")
    parser.add_argument(
        "--normalise",
        "--normalize",
        action="store_true",
        help="aggregate over environments: 0 is what chance scores, 1 the return that counts as solved",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="where picture and CSV go (default: comparison)",
    )
    add_env_kwargs(parser, whose="those of runs that have it, for --normalise")
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, compare, write, and print."""
    if not arguments.references:
        raise GymlabError(
            "Which runs? gymlab compare 'cartpole-v1-ppo-*' OTHER-RUN ...; `gymlab runs` shows what there is."
        )
    from gymlab.api import load_plugins
    from gymlab.cli.output import output_kept_clean, show_json, show_notices
    from gymlab.metrics.comparison import compare, write_csv
    from gymlab.metrics.comparison_plot import comparison_picture

    with output_kept_clean(arguments.json):
        load_plugins(arguments.plugin)
        entries, notices = read_runs(arguments.references, arguments.runs_dir)
        metric, from_result, more = choose_metric(entries, arguments.metric)
        runs, dropped = compared_runs(entries, arguments.group, metric, from_result, arguments.x)
        notices += [*more, *dropped]
        scales = scales_of(entries, runs, arguments.env_kwargs) if arguments.normalise else None
        comparison = compare(runs, scales)
        try:
            arguments.out.mkdir(parents=True, exist_ok=True)
            thresholds = {entry.env_id: threshold_of(entry) for entry in entries} if "ep_rew" in metric else {}
            picture = comparison_picture(
                comparison,
                arguments.out / "compare.png",
                xlabel=AXES[arguments.x],
                ylabel="episode return" if metric.endswith("roll/ep_rew/mean") else metric,
                thresholds={str(name): value for name, value in thresholds.items() if value is not None},
            )
            table_file = write_csv(comparison, arguments.out / "compare.csv")
        except OSError as error:
            raise GymlabError(f"Cannot write to {arguments.out}: {error}. Give another folder with --out.") from error
    score = (
        "the final evaluation, on episodes that training never saw" if from_result else f"the last value of {metric}"
    )
    show_notices(notices)
    if arguments.json:
        show_json(_as_json(comparison, metric, score, picture, table_file))
    else:
        _show(comparison, score, picture, table_file)
    return 0


def read_runs(references: Sequence[str], runs_dir: str | None) -> tuple[list[RunEntry], list[str]]:
    """The runs that are meant and can be read, in the order of their seeds, and what is to be said about them."""
    from gymlab.cli.report import find_runs
    from gymlab.engine.registry import read_entry
    from gymlab.engine.run import runs_directory

    entries, notices = [], []
    for found in find_runs(list(references), runs_directory(runs_dir)):
        entry = read_entry(found)
        if entry is None or entry.status == "damaged" or entry.env_id is None:
            notices.append(f"{found.id} is left out: {entry.reason if entry else 'it is no run'}")
            continue
        if entry.status != "finished":
            notices.append(f"{entry.id} is {entry.status}: it counts as far as it came.")
        if note := entry.result.get("note"):
            notices.append(f"{entry.id}: {note}.")
        entries.append(entry)
    if not entries:
        raise GymlabError("None of these runs can be read.")
    return sorted(entries, key=lambda entry: (entry.experiment or "", entry.seed or 0, entry.started or 0.0)), notices


def choose_metric(entries: Sequence[RunEntry], wanted: str | None) -> tuple[str, bool, list[str]]:
    """The metric, whether scores are those of the final evaluation, and what is to be said about it.

    Unless a metric is named, scores are those of the final evaluation if all runs have one.
    """
    from gymlab.metrics.names import episode_return
    from gymlab.metrics.plots import points

    columns = {
        name for entry in entries for name, values in _metrics(entry).items() if any(v is not None for v in values)
    }
    if wanted is not None:
        if wanted not in columns:
            hint = did_you_mean(wanted, columns)
            raise GymlabError(f"--metric {wanted!r}: no run has it. {hint} Known are the columns of metrics.csv.")
        return wanted, False, []
    from_result = all(entry.result.get("mean") is not None for entry in entries)
    if all(points(_metrics(entry), episode_return("val"))[0].size for entry in entries):
        return episode_return("val"), from_result, []
    notice = f"Not every run was evaluated while it trained: curves are of {episode_return('train')}."
    return episode_return("train"), from_result, [notice]


def compared_runs(
    entries: Sequence[RunEntry], group: str | None, metric: str, from_result: bool, axis: str
) -> tuple[list[ComparedRun], list[str]]:
    """Each run with its group, score and curve; runs that have none are left out, with a word."""
    from gymlab.engine.seed_groups import seed_groups
    from gymlab.metrics.comparison import ComparedRun
    from gymlab.metrics.names import ENV_STEPS, WALL_SECONDS
    from gymlab.metrics.plots import points

    several = len({entry.env_id for entry in entries}) > 1
    key = group or ("algorithm" if several else "experiment")
    notices, curves, measured = [], {}, []
    for entry in entries:
        curves[entry.id] = points(_metrics(entry), metric, ENV_STEPS if axis == "env_steps" else WALL_SECONDS)
        if curves[entry.id][0].size or from_result:
            measured.append(entry)
        else:
            notices.append(f"{entry.id} is left out: it has no value of {metric}.")
    if not measured:
        raise GymlabError(f"None of these runs has a value of {metric}.")
    groups, told = seed_groups(measured, lambda entry: group_of(entry, key))
    runs = []
    for found in groups:
        for entry in found.entries:
            curve = curves[entry.id]
            score = float(entry.result["mean"]) if from_result else float(curve[1][-1])
            steps, seconds = entry.env_steps or 0, entry.seconds or 0.0
            note = entry.result.get("note") if from_result else None
            place = (entry.id, found.label, str(entry.env_id), entry.seed)
            runs.append(ComparedRun(*place, score, curve, steps, seconds, note))
    return runs, [*notices, *told]


def group_of(entry: RunEntry, key: str) -> str:
    """The name of the group that a run belongs to: a setting is written `policy_lr=0.0003`."""
    if key in GROUPS:
        return str({"experiment": entry.experiment, "algorithm": entry.algo, "env": entry.env_id}[key])
    value: Any = entry.run.config_data
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = [*GROUPS, *entry.run.config_data]
            raise GymlabError(f"--group {key!r}: run {entry.id} has no such setting. {did_you_mean(key, known)}")
        value = value[part]
    return f"{key}={value}"


def threshold_of(entry: RunEntry) -> float | None:
    """The return that counts as solved: as the run was judged, else as its config says."""
    declared = entry.result.get("threshold")
    if declared is None:
        config = entry.run.config_data
        returns = (config.get("spec") or {}).get("returns") or {}
        declared = config.get("reward_threshold") or returns.get("threshold_solved")
    return None if declared is None else float(declared)


def scales_of(
    entries: Sequence[RunEntry], runs: Sequence[ComparedRun], env_kwargs: Sequence[str] = ()
) -> dict[str, tuple[float, float]]:
    """What chance scores and what counts as solved, by environment."""
    used = {run.id for run in runs}
    scales: dict[str, tuple[float, float]] = {}
    for entry in entries:
        environment = str(entry.env_id)
        if entry.id not in used or environment in scales:
            continue
        threshold = threshold_of(entry)
        if threshold is None:
            raise GymlabError(
                f"--normalise: no return counts as solved in {environment}. Set reward_threshold or "
                "spec.returns.threshold_solved in its experiment, or compare its runs alone."
            )
        chance = random_return(entry, env_kwargs)
        if not chance < threshold:
            raise GymlabError(
                f"--normalise: in {environment} chance scores {chance:g}, no less than {threshold:g}, which is solved."
            )
        scales[environment] = (chance, threshold)
    return scales


def random_return(entry: RunEntry, env_kwargs: Sequence[str] = ()) -> float:
    """What chance scores: as the spec says (`returns.random`), else measured over a few episodes."""
    import numpy as np

    from gymlab.engine.evaluation import Limits
    from gymlab.engine.playing import UNFINISHED, Game, RandomPolicy
    from gymlab.engine.train import run_config, stored_config
    from gymlab.envs.wrappers.registry import parse_wrapper

    stored = stored_config(entry.run)
    told = stored.spec.returns.get("random")
    if isinstance(told, int | float):
        return float(told)
    owners = {*stored.env_kwargs, *(parse_wrapper(entry)[0] for entry in stored.env_wrappers)}
    fitting = [text for text in env_kwargs if re.split(r"[.=]", text)[0] in owners]
    with Game(run_config(entry.run, fitting), seed=0, render=False) as game:
        game.policy = RandomPolicy(game.env.action_space, seed=0)
        for _ in game.play(RANDOM_EPISODES, Limits.of(game.config)):
            pass
        whole = [episode.env_return for episode in game.finished if episode.ending != UNFINISHED]
    if not whole:
        raise GymlabError(
            f"--normalise: chance ends no episode of {entry.env_id} in time, so that what it scores is unknown. "
            "Set spec.returns.random in its experiment."
        )
    return float(np.mean(whole))


def _metrics(entry: RunEntry) -> dict[str, list[float | None]]:
    return entry.run.metrics if (entry.run.dir / "metrics.csv").is_file() else {}


def _show(comparison: Comparison, score: str, picture: Path, table_file: Path) -> None:
    from gymlab.cli.output import screen
    from gymlab.metrics.statistics import FEWEST

    console = screen()
    for environment in comparison.environments:
        results = [result for result in comparison.results if result.environment == environment]
        console.print(_table(environment, results, console.width))
        console.print()
    if comparison.normalised:
        console.print(_table(POOLED_TITLE, comparison.normalised, console.width))
        console.print()
    for improvement in comparison.improvements:
        where = f" ({improvement.environment})" if len(comparison.improvements) > 1 else ""
        told = f"P({improvement.first} > {improvement.second}) = {improvement.probability}{where}"
        console.print(told, soft_wrap=True)
    told = f"score: {score}; 95% intervals over runs; the range below {FEWEST} runs"
    console.print(told, style="dim", soft_wrap=True)
    if comparison.normalised:
        console.print(POOLED, style="dim", soft_wrap=True)
    console.print(f"picture {picture}\ntable   {table_file}", soft_wrap=True)


def _table(title: str, results: Sequence[GroupResult], width: int) -> Any:
    """A line for each group where that fits; else one for each of its measures."""
    from rich.text import Text

    from gymlab.cli.output import table

    rows = [["group", "runs", *MEASURES.values(), "env steps", "training"], *map(_in_one_line, results)]
    if sum(_widths(rows)) - GAP > width:
        head = ["group", "runs", "", "score" if title == POOLED_TITLE else "score [95%]", "env steps", "training"]
        rows = [head, *(row for result in results for row in _in_three_lines(result))]
        room = width - sum(_widths(rows)[1:])
        for row in rows:
            # An experiment is `<env>:<variant>`.
            row[0] = row[0] if len(row[0]) + GAP <= room else row[0].replace(":", ":\n")
    columns, *lines = rows
    made = table(title, *columns, right=("runs", "env steps", "training"), whole=columns[1:])
    first = next(iter(MEASURES.values()))
    for line in lines:
        cells = [Text(text) for text in line]
        if first in columns:
            cells[columns.index(first)].stylize("bold")
        elif first in line:
            cells[line.index(first) + 1].stylize("bold")
        made.add_row(*cells)
    return made


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column, with the gap behind it."""
    from rich.cells import cell_len

    return [max(map(cell_len, texts)) + GAP for texts in zip(*rows, strict=True)]


def _in_one_line(result: GroupResult) -> list[str]:
    from gymlab.metrics.report import format_duration

    scores = [str(getattr(result, name)) for name in MEASURES]
    return [result.group, str(len(result.runs)), *scores, f"{result.env_steps:,.0f}", format_duration(result.seconds)]


def _in_three_lines(result: GroupResult) -> list[list[str]]:
    group, runs, *scores, env_steps, training = _in_one_line(result)
    named = [list(pair) for pair in zip(MEASURES.values(), scores, strict=True)]
    return [[group, runs, *named[0], env_steps, training], *(["", "", *pair, "", ""] for pair in named[1:])]


def _as_json(comparison: Comparison, metric: str, score: str, picture: Path, table_file: Path) -> dict[str, Any]:
    def interval(found: Interval) -> dict[str, float | None]:
        return {"value": found.mean, "low": found.low, "high": found.high}

    def rows(results: Sequence[GroupResult]) -> list[dict[str, Any]]:
        return [
            {
                "environment": result.environment,
                "group": result.group,
                "runs": [{"id": run.id, "seed": run.seed, "score": run.score, "note": run.note} for run in result.runs],
                **{name: interval(getattr(result, name)) for name in ("iqm", "mean", "median")},
                "min": result.mean.smallest,
                "max": result.mean.largest,
                "env_steps": result.env_steps,
                "seconds": result.seconds,
            }
            for result in results
        ]

    improvements = [
        {"environment": i.environment, "first": i.first, "second": i.second, **interval(i.probability)}
        for i in comparison.improvements
    ]
    return {
        "metric": metric,
        "score": score,
        "results": rows(comparison.results),
        "normalised": rows(comparison.normalised),
        "probability_of_improvement": improvements,
        "picture": picture,
        "csv": table_file,
    }
