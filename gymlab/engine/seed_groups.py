"""Runs as groups of seeds: a group holds runs whose settings are the same but for the seed, and each seed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gymlab.config import dump
from gymlab.config.identity import is_schedule, result_settings
from gymlab.engine.changes import ChangeLog, shown
from gymlab.engine.registry import RunEntry
from gymlab.engine.train import stored_config
from gymlab.errors import GymlabError

UNSET = "unset"
MOST_NAMED = 8
"""Keys that a sentence names; a label has as many as tell its group from the others."""
LONGEST_VALUE = 32


@dataclass(frozen=True)
class SeedGroup:
    """Runs that are samples of one experiment."""

    label: str
    """The name they were asked for by, with the settings that other runs of that name have otherwise."""
    entries: tuple[RunEntry, ...]
    """In the order of their seeds; each seed once."""


def seed_groups(entries: Sequence[RunEntry], name_of: Callable[[RunEntry], str]) -> tuple[list[SeedGroup], list[str]]:
    """Runs of one name and environment as groups, in the order of first appearance; and what is to be said about them.

    Runs of one name whose settings differ are several groups. Of runs with the same seed and settings the newest counts,
    one that came to its end before one that did not.
    """
    named: dict[tuple[str, str | None], list[RunEntry]] = {}
    for entry in entries:
        named.setdefault((name_of(entry), entry.env_id), []).append(entry)
    groups, notices = [], []
    for (name, _), members in named.items():
        settings = _settings(members)
        parts: dict[str, list[RunEntry]] = {}
        for entry in members:
            parts.setdefault(_text(settings[entry.id]), []).append(entry)
        several = [settings[part[0].id] for part in parts.values()]
        differing = list(_differing(several))
        if differing:
            notices.append(
                f"{name}: runs whose settings differ are no seeds of one experiment. They are {len(parts)} groups here, "
                f"by {_named(differing)}."
            )
        for label, part in zip(_labels(name, several, differing), parts.values(), strict=True):
            counted, left_out = _each_seed_once(part)
            notices += left_out
            commits = dict.fromkeys(commit for entry in counted if (commit := commit_of(entry)))
            if len(commits) > 1:
                notices.append(f"{label}: its runs are of different versions of gymlab: {', '.join(commits)}.")
            groups.append(SeedGroup(label, tuple(counted)))
    return groups, notices


def commit_of(entry: RunEntry) -> str | None:
    """The commit of gymlab that a run was trained with, where that is known."""
    return (entry.record.get("versions") or {}).get("commit")


def _settings(entries: Sequence[RunEntry]) -> dict[str, dict[str, Any]]:
    """What each run's result depends on, by its id.

    As they were stored, if they agree; else with what an earlier release left unwritten, so that a new key is no difference.
    """
    stored = {entry.id: result_settings(entry.run.config_data) for entry in entries}
    if len({_text(settings) for settings in stored.values()}) > 1:
        stored = {entry.id: _complete(entry, stored[entry.id]) for entry in entries}
    return {entry.id: stored[entry.id] | dict(_changes(entry)) for entry in entries}


def _complete(entry: RunEntry, stored: dict[str, Any]) -> dict[str, Any]:
    try:
        return result_settings(dump(stored_config(entry.run)))
    except GymlabError:
        return stored  # Of an algorithm or a release that is not here: its config is compared as it stands.


def _changes(entry: RunEntry) -> Iterator[tuple[str, Any]]:
    """What somebody changed while the run trained."""
    try:
        changes = ChangeLog(entry.run.dir).read()
    except GymlabError:
        yield "changes.jsonl", "cannot be read"
        return
    for change in changes:
        if change.by_hand and change.epoch is not None:
            yield f"{change.name} at {change.env_steps or 0:,} env steps", change.to


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _differing(settings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Keys whose values are not the same in all, in the order of the configs."""
    for key in dict.fromkeys(key for one in settings for key in one):
        if len({_text(one.get(key, UNSET)) for one in settings}) > 1:
            yield key


def _labels(name: str, settings: Sequence[dict[str, Any]], differing: Sequence[str]) -> list[str]:
    """A name for each group: with as few of the differing settings as tell them apart."""
    parts: list[tuple[str, ...]] = [() for _ in settings]
    for key in differing:
        longer = [(*part, f"{key}={_short(one.get(key, UNSET))}") for part, one in zip(parts, settings, strict=True)]
        if len(set(longer)) > len(set(parts)):
            parts = longer
    labels = [", ".join((name, *part)) for part in parts]
    # Values that differ only in what is cut off.
    return [label if labels.count(label) == 1 else f"{label} ({place})" for place, label in enumerate(labels, 1)]


def _short(value: Any) -> str:
    text = (
        shown(value)
        if isinstance(value, float) or is_schedule(value)
        else value
        if isinstance(value, str)
        else json.dumps(value, default=str)
    )
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _named(keys: Sequence[str]) -> str:
    if len(keys) > MOST_NAMED:
        return f"{', '.join(keys[:MOST_NAMED])} and {len(keys) - MOST_NAMED} more"
    return " and ".join([*([", ".join(keys[:-1])] if len(keys) > 1 else []), keys[-1]])


def _each_seed_once(entries: Sequence[RunEntry]) -> tuple[list[RunEntry], list[str]]:
    """One run of each seed; runs whose seed is not known all count."""
    chosen: dict[Any, RunEntry] = {}
    left_out = []
    for entry in sorted(entries, key=lambda entry: (entry.status == "finished", entry.started or 0.0, entry.id)):
        seed = entry.id if entry.seed is None else entry.seed
        if (other := chosen.get(seed)) is not None:
            how = "a newer" if other.status == entry.status else f"a {entry.status}"
            left_out.append(f"{other.id} is left out: {entry.id} is {how} run of the same seed and settings.")
        chosen[seed] = entry
    return sorted(chosen.values(), key=lambda entry: (entry.seed or 0, entry.started or 0.0)), left_out
