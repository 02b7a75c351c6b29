"""Write the report of a run anew from its directory and show it, or a table of results over many runs."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_runs_directory
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.registry import RunEntry
    from gymlab.engine.run import Run
    from gymlab.metrics.report import RunResult

USAGE = "gymlab report [REF ...] [options]"
EXAMPLES = """  gymlab report                                        of the newest run: writes its report.md and curve.png, and shows them
  gymlab report my-run
  gymlab report 'cartpole-*' 'acrobot-*'               a results table over all runs of these names
  gymlab report 'cartpole-*' --markdown docs/results.md
  gymlab report my-run --json"""

BEGIN, END = "<!-- results begin -->", "<!-- results end -->"
"""What is between these lines of a results page is written anew each time; the rest of the page stays."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "references",
        nargs="*",
        metavar="REF",
        help="runs: @last (default), ID, a directory, or a pattern such as 'cartpole-*'",
    )
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the results table into this page")
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show one report, or put many results together."""
    from gymlab.engine.run import runs_directory

    runs = find_runs(arguments.references or ["@last"], runs_directory(arguments.runs_dir))
    patterns = any(is_pattern(reference) for reference in arguments.references)
    if len(runs) == 1 and arguments.markdown is None and not patterns:
        return _show_one(runs[0], as_json=arguments.json)
    return _show_many(runs, arguments.markdown, as_json=arguments.json)


def is_pattern(reference: str) -> bool:
    """Whether a reference may mean several runs."""
    return any(character in reference for character in "*?[")


def find_runs(references: list[str], runs_dir: Path) -> list[Run]:
    """The runs that references and patterns mean, each once."""
    from gymlab.engine.run import all_runs, find_run

    found: dict[Path, Run] = {}
    for reference in references:
        if is_pattern(reference):
            matches = [run for run in all_runs(runs_dir) if fnmatchcase(run.id, reference)]
            if not matches:
                raise GymlabError(
                    f"No run in {runs_dir} is called like {reference!r}. `gymlab runs` shows what is there."
                )
        else:
            matches = [find_run(reference, runs_dir)[0]]
        found |= {run.dir.resolve(): run for run in matches}
    return list(found.values())


def _show_one(run: Run, *, as_json: bool) -> int:
    from gymlab.cli.output import screen, show_json, show_text
    from gymlab.cli.train import run_summary

    if as_json:
        show_json(run_summary(run))
        return 0
    text = _write(run)
    console = screen()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(text, hyperlinks=False))
    else:
        show_text(text)
    return 0


def _write(run: Run) -> str:
    """Write the report and give its text; in a directory that cannot be written to, the text alone."""
    from gymlab.cli.output import show_notices
    from gymlab.engine.links import refuse_links_out
    from gymlab.engine.report import report_data, write_report
    from gymlab.metrics.report import render_report

    refuse_links_out(run.dir)
    try:
        return render_report(write_report(run))
    except OSError as error:
        show_notices([f"{run.dir / 'report.md'} stays as it was: {error.strerror}."])
        return render_report(report_data(run))


def _show_many(runs: list[Run], page: Path | None, *, as_json: bool) -> int:
    from gymlab.cli.output import screen, show_json, show_notices, show_text
    from gymlab.metrics.report import results_table

    results, left_out = collect_results(runs)
    show_notices(left_out)
    if not results:
        raise GymlabError("None of these runs has a result: a run is evaluated when it comes to its end.")
    text = results_table(results)
    if page is not None:
        write_page(page, text + "".join(f"\n- {line}" for line in left_out) + ("\n" if left_out else ""))
    if as_json:
        show_json({"results": [_result_row(result) for result in results], "left_out": left_out})
    elif page is not None:
        screen().print(f"{len(results)} runs written to {page}")
    else:
        show_text(text)
    return 0


def collect_results(runs: list[Run]) -> tuple[list[RunResult], list[str]]:
    """Results by experiment, settings and seed, the newest run of each; and what was left out, with the reason."""
    from gymlab.engine.registry import read_entry
    from gymlab.engine.run import RECORD
    from gymlab.engine.seed_groups import commit_of, seed_groups
    from gymlab.metrics.report import RunResult

    usable = []
    left_out = []
    for run in runs:
        entry = read_entry(run)
        if entry is None:
            left_out.append(f"{run.id} is left out: it is no run.")
        elif entry.status == "damaged":
            left_out.append(f"{run.id} is left out: {entry.reason}")
        elif entry.status != "finished" or entry.result.get("mean") is None:
            why = entry.result.get("note") or entry.reason or "no result"
            left_out.append(f"{run.id} is left out: {entry.status}, {why}.")
        elif None in (missing := _needed(entry)).values():
            unknown = ", ".join(name for name, value in missing.items() if value is None)
            left_out.append(f"{run.id} is left out: {run.dir / RECORD} does not say its {unknown}.")
        else:
            usable.append(entry)
    groups, told = seed_groups(usable, lambda entry: str(entry.experiment))
    results = [
        RunResult(
            experiment=group.label,
            seed=int(entry.seed or 0),
            value=entry.result["mean"],
            env_steps=entry.env_steps or 0,
            training_seconds=entry.seconds or 0.0,
            command=_command(entry),
            commit=commit_of(entry),
            # What cannot be judged is no seed that reached a threshold, and none that missed it.
            threshold=None if entry.result["note"] else entry.result.get("threshold"),
            own_threshold=None if entry.result["note"] else _own_threshold(entry),
            wall_seconds=entry.wall_seconds,
            started=entry.record.get("started"),
            processor=(entry.record.get("machine") or {}).get("processor"),
        )
        for group in groups
        for entry in group.entries
    ]
    noted = [entry for group in groups for entry in group.entries if entry.result["note"]]
    return results, [*left_out, *told, *(f"{entry.id} counts, but {entry.result['note']}." for entry in noted)]


def _own_threshold(entry: RunEntry) -> float | None:
    """The task's own threshold: the one that the run was held against, unless its config names another."""
    config = entry.run.config_data
    if config.get("reward_threshold") is None:
        return entry.result.get("threshold")
    own = ((config.get("spec") or {}).get("returns") or {}).get("threshold_solved")
    return float(own) if isinstance(own, int | float) else None


def _needed(entry: RunEntry) -> dict[str, Any]:
    """What a line of the table cannot do without, by name."""
    return {
        "experiment": entry.experiment,
        "seed": entry.seed,
        "env steps": entry.env_steps,
        "seconds": entry.seconds,
    }


def _command(entry: RunEntry) -> str:
    """What was typed for a run; of one that a program trained, what trains it anew."""
    from gymlab.engine.report import repeat_command

    return str(entry.record.get("command") or repeat_command(entry.run))


def _result_row(result: RunResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}


def write_page(page: Path, text: str) -> None:
    """Put the table into a page, in place of the one it had."""
    block = f"{BEGIN}\n{text}{END}\n"
    try:
        old = page.read_text(encoding="utf-8") if page.exists() else "# Results\n\n"
        before, found, rest = old.partition(BEGIN)
        after = rest.partition(END)[2].removeprefix("\n") if found else ""
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text((before if found else old.rstrip("\n") + "\n\n") + block + after, encoding="utf-8")
    except OSError as error:
        raise GymlabError(f"Cannot write {page}: {error.strerror}. Give another path with --markdown.") from error
