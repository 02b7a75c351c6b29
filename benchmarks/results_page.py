"""docs/results.md from run directories. What was trained elsewhere and has no run here stays as the page has it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim
from benchmarks.orderings import MEASURED, Ordering
from gymlab.api import resolve
from gymlab.metrics.names import WALL_SECONDS, episode_return
from gymlab.metrics.plots import curves
from gymlab.metrics.report import NOT_RECORDED, RESULTS_HEAD, RunResult, own_threshold_text, results_table

SMOKED = "smoke.json"
"""Where `make verify` has `gymlab smoke` write its result, among the runs."""
SMOKED_TITLE = "Only smoked"
COLUMNS, OLD_COLUMNS = RESULTS_HEAD.count(" | ") + 1, 8
"""Of a row, and of one from before date and processor were written down."""
COMMIT = 7
"""Which of the columns holds the commit."""
INTRODUCTION = """\
# Results

Written by `make verify` and `make verify-long` from run directories; nothing here was typed by hand. Returns are the environment's own, of the final agent over its
evaluation episodes on a stream that training never saw. Seeds are the first ones: none was picked. From five seeds on there is a 95% interval of their mean (Student's t), below that their range.
It is one of 95% for nearly normal returns; where single seeds fail far below the others it holds the true mean less often: [of skewed scores](how-to/compare-runs.md).
`reached` says how many seeds reach the return that is claimed here, and which return counts as solved in the task itself. Wall time is that of a whole run, with its training in brackets, beside whatever else the machine did.
A row that says `before` at its commit was measured before that change of the algorithm, and is to be trained anew. What a row from before it was written down does not know is `not recorded`:
of five seeds such a row has the interval of the bootstrap, which is too narrow (it holds the true mean in 84% of cases, not in 95%), as have the bands of its picture.
"""


def write_page(claims: Sequence[Claim], orderings: Sequence[Ordering], runs_dir: Path, out: Path) -> None:
    """The table, a picture of each experiment's curve over its seeds, and the comparisons."""
    before = out.read_text() if out.exists() else ""
    pictures = out.parent / "images"
    pictures.mkdir(parents=True, exist_ok=True)
    trained = [claim for claim in claims if claim.is_trained(runs_dir)]
    head, line, *new = results_table([found for claim in trained for found in results(claim, runs_dir)]).splitlines()
    older = rows_of(before.splitlines())
    rows = {claim.label: marked(older[claim.label], claim) for claim in claims if claim.label in older} | rows_of(new)
    told = [claim for claim in claims if claim.label in rows]
    lines = [INTRODUCTION, head, line, *(rows[claim.label] for claim in told), ""]
    for claim in told:
        if claim in trained:
            draw(claim, runs_dir, pictures / f"{claim.slug}.png")
        lines += [f"![{claim.experiment}](images/{claim.slug}.png)", ""]
    compared = []
    for ordering in orderings:
        here = all(claim.is_trained(runs_dir) for claim in ordering.claims)
        section = ordering.section(runs_dir, pictures) if here else older_section(before, ordering)
        compared += [ordering] if section else []
        lines += section
    lines += only_smoked(told, compared, runs_dir / SMOKED) or section_of(before, SMOKED_TITLE)
    out.write_text("\n".join(lines))


def rows_of(lines: Sequence[str]) -> dict[str, str]:
    """Rows of the table of results by what they begin with; other tables of the page have fewer columns."""
    found = (
        re.match(r"\| `([^`]+)` \|", line) for line in lines if line.count(" | ") in (OLD_COLUMNS - 1, COLUMNS - 1)
    )
    return {match[1]: match.string for match in found if match is not None}


def marked(row: str, claim: Claim) -> str:
    """An older row, which says after its commit what has changed since."""
    cells = row.strip("| ").split(" | ")
    if len(cells) == OLD_COLUMNS:
        cells = brought_up(cells, claim)
    commit = re.sub(r" \(before: .*\)$", "", cells[COMMIT])
    cells[COMMIT] = commit if claim.before is None else f"{commit} (before: {claim.before})"
    return f"| {' | '.join(cells)} |"


def brought_up(cells: list[str], claim: Claim) -> list[str]:
    """A row of before dates, processors and wall times were written down, with what it knows and no more."""
    label, measured, seeds, reached, steps, training, command, commit = cells
    own = own_threshold_text(claim.at_least, own_threshold(claim), of_return=claim.metric is None)
    measured = without_bootstrap(measured, len(claim.seeds))
    return [label, measured, seeds, f"{reached} ({own})", steps, f"{NOT_RECORDED} ({training})", command, commit] + [
        NOT_RECORDED
    ] * 2


def without_bootstrap(text: str, seeds: int) -> str:
    """A mean over seeds with the interval of the percentile bootstrap, as what that is.

    One over three seeds goes from the least to the greatest: a draw is all of one seed in 3.7% of cases. Over five it is too narrow.
    """
    found = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", text)
    if found is None:
        return text
    mean, low, high = found.groups()
    if low == high:
        return f"{mean} (all {seeds} equal)"
    return f"{mean} (range {low} to {high})" if seeds <= 3 else f"{mean} (bootstrap [{low}, {high}], too narrow)"


@cache
def own_threshold(claim: Claim) -> float | None:
    """The return that counts as solved in the task of a claim; None where it has none."""
    return resolve(claim.experiment).config.solved_threshold


def section_of(page: str, title: str) -> list[str]:
    """The lines of a section, with its heading; none where there is no such section."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return [] if found is None else [*found[0].rstrip().splitlines(), ""]


def older_section(page: str, ordering: Ordering) -> list[str]:
    """A comparison as the page has it; one of before dates were written down says so, and what its intervals are."""
    lines = section_of(page, ordering.title)
    unknown = f"Date, commit and processor: {NOT_RECORDED}."
    if not lines or unknown in lines or any(line.startswith(MEASURED) for line in lines):
        return lines
    cells = [
        f"| {' | '.join(without_bootstrap(cell, len(ordering.seeds)) for cell in line.strip('| ').split(' | '))} |"
        if line.startswith("| `")
        else line
        for line in lines
    ]
    return [*cells[:3], unknown, *cells[3:]]


def results(claim: Claim, runs_dir: Path) -> list[RunResult]:
    """What the table is told of each seed."""
    found = []
    for seed in claim.seeds:
        run = claim.run(runs_dir, seed)
        record: dict[str, Any] = run.record
        found.append(
            RunResult(
                experiment=claim.label,
                seed=seed,
                value=claim.value(run),
                env_steps=record["counters"]["env_steps"],
                training_seconds=run.metrics[WALL_SECONDS][-1] or 0.0,
                command=claim.command,
                commit=record["versions"].get("commit"),
                threshold=claim.at_least,
                own_threshold=own_threshold(claim),
                of_return=claim.metric is None,
                wall_seconds=record.get("wall_seconds"),
                started=record.get("started"),
                processor=(record.get("machine") or {}).get("processor"),
            )
        )
    return found


def draw(claim: Claim, runs_dir: Path, picture: Path) -> None:
    """The curves of all seeds, beside what others report."""
    runs = [claim.run(runs_dir, seed).metrics for seed in claim.seeds]
    shown = (
        {"evaluation": episode_return("val"), "training": episode_return("train")}
        if claim.metric is None
        else {"training": claim.metric}
    )
    curves(
        dict.fromkeys(shown, runs),
        picture,
        metric=shown,
        threshold=claim.at_least,
        goal="claimed: at least",
        title=claim.experiment,
        marks={name: (steps, value) for name, steps, value in claim.others},
    )


def only_smoked(claims: Sequence[Claim], orderings: Sequence[Ordering], smoked: Path) -> list[str]:
    """What ships and has no result above: whether a short training of it ran; nothing is said about what it learns."""
    if not smoked.exists():
        return []
    found = json.loads(smoked.read_text())
    shown = {claim.experiment for claim in claims} | {name for ordering in orderings for name in ordering.experiments}
    # Smoke names experiments by their files, where a slash of the id is a dash.
    shown = {name.replace("/", "-") for name in shown}
    others = sorted(
        (result for result in found["results"] if result["name"] not in shown), key=lambda result: result["name"]
    )
    return [
        f"## {SMOKED_TITLE}",
        "",
        f"These ship and have no result above: `gymlab smoke` trained each for {found['timesteps']} environment steps,",
        "which shows that it runs, and nothing about what it learns.",
        "",
        "| experiment | |",
        "|---|---|",
        *(
            f"| `{result['name']}` | {result['state']}{': ' * bool(result['message'])}{result['message']} |"
            for result in others
        ),
        "",
    ]
