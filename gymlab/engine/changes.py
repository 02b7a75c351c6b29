"""Changes of hyperparameters on disk: what a run's config.json asks for, and the log of what was asked for and made.

    config.start.json   the config that the run was started with; nobody edits it
    config.json         the same with what is wanted now: edited by hand or by `gymlab set`, read by the run at the start of an epoch
    changes.jsonl       a line for each wish of `gymlab set` and for each change that was made, before it took effect

A change by hand is due when config.json says something else than the newest such change in the log (or, without one, config.start.json), or when
`gymlab set` has asked for it since: nothing else is remembered anywhere, so a wish survives any stop.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gymlab.config.dialects import canonical_name, rename, set_dotted, translate
from gymlab.config.schedules import split_schedule_key
from gymlab.config.schema import Config, tunable_fields
from gymlab.config.yaml_reader import Located
from gymlab.engine.files import JSON_LIMIT_BYTES, refuse_constant, write_json, write_text
from gymlab.engine.hyperparameters import checked_value, plain, refusal
from gymlab.engine.links import refuse_links_out
from gymlab.engine.record import is_number, is_text, is_whole
from gymlab.engine.run import CONFIG, STARTED
from gymlab.errors import CheckpointError, ConfigError
from gymlab.plain_files import NotPlainFile, open_plain, open_to_read

LOG = "changes.jsonl"
BY_FILE, BY_COMMAND, BY_RESUME = "config.json", "gymlab set", "resume"
"""Where changes by hand come from."""


@dataclass(frozen=True)
class Change:
    """A change of one hyperparameter, or the wish for one."""

    name: str
    """Field that changes."""
    to: Any
    """New value as JSON has it: a number, null or a schedule."""
    source: str
    """Who or what changed it."""
    time: float
    """When, in seconds since 1970."""
    before: Any = None
    """Value until then."""
    epoch: int | None = None
    """Epochs that were over when it was made; None for a wish."""
    env_steps: int | None = None
    """Env steps at which it was made; None for a wish."""
    asked: float | None = None
    """Time of the wish that it answers, when there was one."""
    by_hand: bool = True
    """Whether somebody wanted it. A run that goes back behind such a change makes it again; others come about by themselves."""

    def to_line(self) -> str:
        """The change as a line of the log."""
        data = asdict(self)
        first = {key: data.pop(key) for key in ("time", "epoch", "env_steps", "name")}
        return json.dumps({**first, "from": data.pop("before"), **data}, allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: bytes) -> Change:
        """The change that `to_line` gave."""
        data = json.loads(line)
        change = cls(before=data.pop("from"), **data)
        for name, value in vars(change).items():
            if not _KINDS[name](value):
                raise ValueError(f"its `{name}` is {value!r}")
        return change

    def __str__(self) -> str:
        return f"{self.name}: {shown(self.before)} -> {shown(self.to)} at {self.env_steps or 0:,} env steps ({self.source})"


def _is_value(value: Any) -> bool:
    """Whether a value is one that a hyperparameter can have: a number, nothing or a schedule."""
    if not isinstance(value, dict):
        return value is None or is_number(value)
    return is_text(value.get("schedule")) and is_number(value.get("start")) and is_number(value.get("end"))


_KINDS: dict[str, Callable[[Any], bool]] = {
    "name": is_text,
    "to": _is_value,
    "before": _is_value,
    "source": is_text,
    "time": is_number,
    "epoch": lambda value: value is None or is_whole(value),
    "env_steps": lambda value: value is None or is_whole(value),
    "asked": lambda value: value is None or is_number(value),
    "by_hand": lambda value: isinstance(value, bool),
}
"""What the fields of a line in the log may be."""


def shown(value: Any) -> str:
    """A value in a few words: `0.0003`, `none`, `linear 0.001 to 0`."""
    if isinstance(value, Mapping):
        return f"{value['schedule']} {value['start']:g} to {value['end']:g}"
    return "none" if value is None else f"{value:.6g}"


class ChangeLog:
    """changes.jsonl of a run."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOG

    def read(self) -> list[Change]:
        """Every line in the order in which they were written; one that a crash has torn was never in effect."""
        try:
            with open_to_read(self.path) as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        changes = []
        for number, line in enumerate(lines[:-1], start=1):
            try:
                changes.append(Change.from_line(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise CheckpointError(
                    f"{self.path}, line {number}: is no change ({error}). Put the line right, or delete it."
                ) from error
        return changes

    def append(self, changes: Sequence[Change]) -> None:
        """Add lines and wait until they are on the disk."""
        lines = "".join(change.to_line() for change in changes).encode()
        descriptor = open_plain(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                os.ftruncate(descriptor, os.pread(descriptor, size, 0).rfind(b"\n") + 1)
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rewind(self, epoch: int) -> None:
        """Forget what came about by itself after `epoch`: it does so again. Changes by hand stay, to be made again."""
        changes = self.read()
        kept = [change for change in changes if change.by_hand or (change.epoch or 0) <= epoch]
        if len(kept) < len(changes):
            write_text(self.path, "".join(change.to_line() for change in kept))


def newest(changes: Sequence[Change]) -> dict[str, Change]:
    """The change of each name that was written last."""
    return {change.name: change for change in changes}


def to_make_again(changes: Sequence[Change], first_epoch: int) -> list[Change]:
    """Changes by hand that a run at `first_epoch` has still before it; a newer one of the same name takes the place of those after it."""
    ahead: list[Change] = []
    for change in changes:
        if not change.by_hand or change.epoch is None:
            continue
        ahead = [other for other in ahead if other.name != change.name or (other.epoch or 0) < change.epoch]
        ahead.append(change)
    return [change for change in ahead if change.epoch is not None and change.epoch >= first_epoch]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One at a time changes the files of a run: two `gymlab set` do not lose each other's values."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_config_file(path: Path) -> dict[str, Any]:
    """What config.json says at this moment; somebody may be in the middle of writing it."""
    try:
        with open_to_read(path) as file:
            content = file.read(JSON_LIMIT_BYTES + 1)
        if len(content) > JSON_LIMIT_BYTES:
            raise ConfigError(f"{path.name} is larger than {JSON_LIMIT_BYTES >> 20} MB and is not read.")
        data = json.loads(content.decode("utf-8"), parse_constant=refuse_constant)
    except NotPlainFile as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path.name} holds no mapping of settings.")
    return data


def _read_for_user(directory: Path) -> dict[str, Any]:
    try:
        return read_config_file(directory / CONFIG)
    except ConfigError as error:
        raise ConfigError(
            f"{directory}: {error} Put it right first; {STARTED} beside it is what the run was started with."
        ) from error


def split_settings(data: Mapping[str, Any], schema: type[Config]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tunable fields under their names of today, every spelling of a schedule translated; and all other keys as they are."""
    names = tunable_fields(schema)
    tunable = {key: value for key, value in data.items() if field_of(key) in names}
    translated = translate(rename(tunable, CONFIG, []), schema, CONFIG)
    # Translation leaves out a null that a field does not take; here it is judged, and refused, like any other value.
    wanted = {field_of(key): translated.get(field_of(key)) for key in tunable}
    return wanted, {key: value for key, value in data.items() if key not in tunable}


def field_of(key: str) -> str:
    """The field that a key sets: `learning_rate`, `policy_lr.end` and `policy_lr_schedule` are all about `policy_lr`."""
    name = canonical_name(key.removeprefix("experiment.").partition(".")[0])
    parts = split_schedule_key(name)
    return parts[0] if parts else name


def started_values(config: Config) -> dict[str, Any]:
    """The tunable fields of a config as JSON has them."""
    return {name: plain(getattr(config, name)) for name in tunable_fields(type(config))}


def due(wanted: Mapping[str, Any], config: Config, changes: Sequence[Change]) -> tuple[list[Change], dict[str, str]]:
    """Wishes (without a place in the run yet) for what config.json and the log ask for and nobody has made; and what is refused, with the reason."""
    made = newest([change for change in changes if change.by_hand and change.epoch is not None])
    asked = newest([change for change in changes if change.epoch is None])
    started = started_values(config)
    wishes: list[Change] = []
    refused: dict[str, str] = {}
    for name, raw in wanted.items():
        last, wish = made.get(name), asked.get(name)
        present = started[name] if last is None else last.to
        is_new = wish is not None and wish.time != (last.asked if last else None)
        if raw == present and not is_new:
            continue
        try:
            value = plain(checked_value(config, name, raw, CONFIG))
        except ConfigError as error:
            refused[name] = str(error)
            continue
        answers = wish if wish is not None and is_new and wish.to == value else None
        if value != present or answers is not None:
            stamp = wish.time if wish else None
            wishes.append(Change(name, value, answers.source if answers else BY_FILE, time.time(), asked=stamp))
    return wishes, refused


def ask(directory: Path, config: Config, given: Sequence[tuple[str, Any]], source: str) -> list[Change]:
    """Write wishes for `key, value` pairs into config.json and the log, all or none; returns those that change anything.

    A run that goes back behind earlier changes is told on resume from when on a value counts, even if it is the newest one.
    """
    refuse_links_out(directory)
    schema = type(config)
    path = directory / CONFIG
    with locked(directory):
        data = _read_for_user(directory)
        if not (directory / STARTED).exists():
            write_json(directory / STARTED, data)
        log = ChangeLog(directory)
        changes = log.read()
        now = present_values(config, changes)
        values = _checked(data, config, given, source, now)
        before = split_settings(data, schema)[0]
        wishes = [
            Change(name, value, source, time.time(), before=now[name])
            for name, value in values.items()
            if value != now[name] or value != before.get(name) or (source == BY_RESUME and name in newest(changes))
        ]
        if wishes:
            log.append(wishes)
            write_json(path, _with_values(data, values))
    return wishes


@dataclass(frozen=True)
class Tunable:
    """A hyperparameter of a run as `gymlab set` shows it."""

    name: str
    """Field that may change."""
    value: Any
    """What it is now, as JSON has it: a number, null or a schedule."""
    wanted: Any
    """What config.json asks for and the run has not taken yet; equal to `value` when there is nothing."""
    description: str
    """What it means."""


def tunables(directory: Path, config: Config) -> list[Tunable]:
    """Every hyperparameter of a run with its value now and the one that is waited for."""
    changes = ChangeLog(directory).read()
    now = present_values(config, changes)
    wishes, _ = due(split_settings(_read_for_user(directory), type(config))[0], config, changes)
    wanted = now | {wish.name: wish.to for wish in wishes}
    fields = type(config).model_fields
    return [Tunable(name, now[name], wanted[name], fields[name].description or "") for name in now]


def present_values(config: Config, changes: Sequence[Change]) -> dict[str, Any]:
    """What the tunable fields are after the changes that were made so far."""
    return started_values(config) | {change.name: change.to for change in changes if change.epoch is not None}


def _checked(
    data: Mapping[str, Any], config: Config, given: Sequence[tuple[str, Any]], place: str, now: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields that the pairs set, laid on the settings there are, as values that the schema accepts."""
    schema = type(config)
    tree, names = Located(data), []
    for key, value in given:
        key, name = key.removeprefix("experiment."), field_of(key)
        if name not in now:
            raise ConfigError(f"{refusal(schema, name)}\nWhat can, with its value now:\n{listing(now)}")
        if canonical_name(key) == name:
            # A plain value stands for itself: what belonged to an earlier schedule goes.
            for other in [other for other in tree if field_of(other) == name]:
                del tree[other]
        set_dotted(tree, key, value, place)
        names.append(name)
    wanted, _ = split_settings(tree, schema)
    return {name: plain(checked_value(config, name, wanted[name], place)) for name in dict.fromkeys(names)}


def listing(values: Mapping[str, Any]) -> str:
    """Names and values, one a line."""
    width = max(map(len, values), default=0)
    return "\n".join(f"  {name:<{width}}  {shown(value)}" for name, value in values.items())


def _with_values(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with new values at the places of the old ones; other spellings of the same fields go."""
    kept = {key: value for key, value in data.items() if key in values or field_of(key) not in values}
    return {**kept, **values}
