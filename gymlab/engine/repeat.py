"""Training a run anew from what it left behind, and whether the same came out.

A run is repeated in the parts that it was trained in: each from where the one before ended, to the step, with the settings and the changes by hand
that it had. What was given up when the run went back to an earlier checkpoint is not trained again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gymlab.config.schema import Config
from gymlab.engine.changes import Change, ChangeLog, to_make_again
from gymlab.engine.legs import Leg, Place
from gymlab.engine.links import refuse_links_out
from gymlab.engine.machine import machine
from gymlab.engine.manifest import MODEL
from gymlab.engine.orchestrator import STOPPED
from gymlab.engine.origin import EnvKwargs, named_again, refuse_dataset
from gymlab.engine.resume import MAY_CHANGE
from gymlab.engine.run import Run, find_run, refuse_if_training, versions
from gymlab.engine.signals import REPEATED
from gymlab.engine.train import config_from, resume, train
from gymlab.envs.families import family_of
from gymlab.errors import CheckpointError, ConfigError, GymlabError, NotInstalled
from gymlab.metrics.names import ENV_STEPS, EPOCH

SHOWN = "metrics.csv"
CLOCKS = "sys/"
"""Metrics of the machine and the clock: no two trainings have the same."""
EVALUATION = ("mean", "n", "min", "max")


@dataclass(frozen=True)
class Repetition:
    """A run that was trained anew, held against the one that it repeats."""

    of: Run
    run: Run
    difference: str | None
    """Where the two differ first; None: nowhere."""
    compared: str
    """What was held against what."""
    circumstances: tuple[str, ...]
    """What is not as it was when the run was trained, or cannot be repeated: the numbers may differ for it."""

    @property
    def equal(self) -> bool:
        """Whether metrics and model are the same, bit for bit."""
        return self.difference is None


@dataclass(frozen=True)
class Plan:
    """What a repetition trains."""

    sittings: tuple[tuple[dict[str, Any], Place | None], ...]
    """The parts: settings, and where each ended; None: it ends by itself."""
    changes: tuple[Change, ...]
    doubts: tuple[str, ...]
    """Why the same need not come out even where nothing else has changed."""
    told: str
    """How far it goes, where that is not the end of the settings' own."""

    @property
    def end(self) -> Place | None:
        """Where the last part ends."""
        return self.sittings[-1][1]


def plan(run: Run) -> Plan:
    """The parts of a run as its files tell of them."""
    record, doubts = run.record, []
    sittings = record.get("resumed") or []
    settings = [run.config_data]
    for sitting in reversed(sittings):
        before = {name: value for name, value in sitting.get("changed", {}).items() if name in MAY_CHANGE}
        settings.insert(0, settings[0] | before)
    parts: list[tuple[Place | None, dict[str, Any]]] = [(None, settings[0])]
    for sitting, data in zip(sittings, settings[1:], strict=True):
        if "at" not in sitting:
            doubts.append(f"it was resumed from {sitting['from']} by an earlier release, which did not note how")
            parts[-1] = (parts[-1][0], data)
            continue
        place = Place.from_json(sitting["at"])
        while parts[-1][0] is not None and (parts[-1][0].counts > place.counts or parts[-1][0] == place):
            parts.pop()
        parts.append((place, data))
    end, told = _end(run)
    ends = [*(place for place, _ in parts[1:]), end]
    changes = to_make_again(ChangeLog(run.dir).read(), 0)
    together = tuple((data, place) for (_, data), place in zip(parts, ends, strict=True))
    return Plan(together, tuple(changes), (*doubts, *_doubts(record)), told)


def _end(run: Run) -> tuple[Place | None, str]:
    """Where a run ended, and what is to be said about it; None for one that was not stopped."""
    refuse_if_training(run)
    state = run.state
    if state.status == "finished":
        return None, ""
    try:
        place = Place.of(run.checkpoints.find())
    except CheckpointError as error:
        raise GymlabError(
            f"Run {run.id} is {state.status} ({state.reason or 'no reason given'}) and has no checkpoint that says how far "
            f"it came, so there is nothing to repeat: {error}"
        ) from error
    reason = state.reason if state.reason.startswith(state.status) else f"{state.status}: {state.reason}"
    where = "its repetition ends there" if state.status == "stopped" else "its repetition ends at its last checkpoint"
    return place, f"{run.id} {reason}; {where}, at {place.env_steps:,} env steps ({place.updates:,} updates)."


def _doubts(record: Mapping[str, Any]) -> list[str]:
    """What a repetition cannot promise, as the record tells."""
    doubts, computed = [], record.get("machine") or {}
    if str(computed.get("device", "")).startswith("cuda"):
        doubts.append("it was trained on a GPU, which does not always add up in the same order")
    if count := record.get("restarts"):
        doubts.append(f"{count} environment{'s' * (count > 1)} of it failed and had to be replaced")
    result = record.get("result") or {}
    if result.get("complete") is False and not str(result.get("cut")).startswith("limit of"):
        doubts.append("its last evaluation was cut by the clock (eval_time_limit)")
    for sitting in record.get("resumed") or []:
        doubts += [f"it was resumed with {change}" for change in changed_circumstances(sitting, record)]
    if "+dirty" in (record.get("versions") or {}).get("commit", ""):
        doubts.append("gymlab's own files had been changed since the commit that it names")
    return list(dict.fromkeys(doubts))


def changed_circumstances(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two records say was not the same: versions of packages and the machine; `name: before -> now`."""
    changed = []
    for part in ("versions", "machine"):
        old, new = before.get(part) or {}, now.get(part) or {}
        changed += [f"{name}: {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]
    return changed


def repeat(
    run: Run,
    *,
    runs_dir: Path,
    run_id: str | None = None,
    command: str | None = None,
    env_kwargs: EnvKwargs = (),
    plugins: Sequence[str] = (),
    quiet: bool = False,
) -> Repetition:
    """Train a run anew beside it and compare. Its directory may be somebody else's: what it names on this machine, the user has to name again."""
    run = Run(run.dir)  # its files may have changed since it was read
    refuse_links_out(run.dir)
    planned, record = plan(run), run.record
    configs = [_config(run, data, env_kwargs, quiet) for data, _ in planned.sittings]
    _check_environment(run, configs[0])
    here = {"versions": versions(), "machine": machine(torch.device("cpu"))}
    for chosen_later in ("threads", "device"):
        del here["machine"][chosen_later]
    differs = [*changed_circumstances(record, here), *_other_first_model(run, configs[0])]
    if not record.get("machine"):
        differs.append("an earlier release did not note the machine that it was trained on")
    notices = [f"Repeats {run.id}.", *([planned.told] if planned.told else [])]
    if differs or planned.doubts:
        notices.append(f"The numbers may differ from those of {run.id}: {'; '.join([*differs, *planned.doubts])}.")
    made, last = None, len(configs) - 1
    for index, (config, (_, stop_at)) in enumerate(zip(configs, planned.sittings, strict=True)):
        leg = Leg(
            run.id,
            run.dir.parent,
            backend=record.get("backend"),
            threads=(record.get("machine") or {}).get("threads"),
            changes=planned.changes,
            stop_at=stop_at,
            is_last=index == last,
        )
        if made is None:
            made = train(
                config,
                runs_dir=runs_dir,
                run_id=run_id,
                command=command,
                notices=notices,
                plugins=plugins,
                leg=leg,
            )
        else:
            made = resume(Run(made.dir), "@last", config, notices=notices, leg=leg)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # the first process may still be writing
        if _is_beside():
            continue
        if made.status == "stopped" and not made.state.reason.startswith(f"{STOPPED}{REPEATED}"):
            return _compare_cut(run, made, (*differs, *planned.doubts))
    assert made is not None
    made = Run(made.dir)
    if _is_beside():
        return Repetition(run, made, None, "", ())
    told = [*changed_circumstances(record, made.record), *_other_first_model(run, configs[0]), *planned.doubts]
    rows, difference = _compare_metrics(run, made, planned.end)
    difference = difference or _compare_models(run, made) or _compare_results(run, made)
    checkpoint = made.checkpoints.find().name.removesuffix(".ckpt")
    return Repetition(run, made, difference, f"{rows} of {SHOWN} and the model at {checkpoint}", tuple(told))


def _config(run: Run, data: Mapping[str, Any], env_kwargs: EnvKwargs, quiet: bool) -> Config:
    """The settings of one part, with what was chosen by the clock when the run began."""
    config, record, place = config_from(data), run.record, str(run.config_path)
    refuse_dataset(config, (), place)
    config = named_again(config, env_kwargs, place=place)
    if quiet:
        config = config.model_copy(update={"quiet": True})
    if record.get("backend") != "async" or getattr(config, "double_buffer", None) != "auto":
        return config
    chosen: dict[str, Any] = {"double_buffer": bool(record.get("by_turns"))}
    if record.get("workers") and config.env_workers == "auto":
        chosen["env_workers"] = record["workers"]
    return config.model_copy(update=chosen)


def _check_environment(run: Run, config: Config) -> None:
    """An environment that nobody has registered here: what the user can do about it."""
    try:
        family_of(config.env_id).resolve(config.env_id)
    except NotInstalled:
        raise
    except GymlabError as error:
        plugins = run.record.get("plugins")
        named = " ".join(f"--plugin {name}" for name in plugins) if plugins else "--plugin MODULE"
        raise ConfigError(
            f"{error}\n{run.id} was trained where {config.env_id} was registered, and a run holds no code. Name the module that registers "
            f"it: gymlab repeat {run.id} {named}; or register it in a script, and call gymlab.repeat({run.id!r}) there."
        ) from error


def _other_first_model(run: Run, config: Config) -> list[str]:
    """Whether the parameters that the run began with are others now, in words; an error where they are gone."""
    begun_with = run.record.get("first_model")
    if config.init_from_run is None or begun_with is None:
        return []
    try:
        source, which = find_run(config.init_from_run, run.dir.parent)
        checkpoint = source.checkpoints.find(which)
    except CheckpointError as error:
        raise CheckpointError(
            f"{run.id} began with the parameters of {config.init_from_run}, which cannot be read any more: {error}"
        ) from error
    same = checkpoint.manifest.files[MODEL]["sha256"] == begun_with
    return [] if same else [f"the parameters in {config.init_from_run} that it began with are others now"]


def _is_beside() -> bool:
    """Whether this is a further process of a distributed training: the first one compares."""
    return torch.distributed.is_initialized() and torch.distributed.get_rank() > 0


def _compare_cut(of: Run, made: Run, circumstances: tuple[str, ...]) -> Repetition:
    """A repetition that was stopped before its end, as far as it came."""
    place = Place.of(made.checkpoints.find())
    rows, difference = _compare_metrics(of, made, place)
    so_far = difference or f"until then {rows} are equal"
    cut = f"it was {made.state.reason} at {place.env_steps:,} env steps, before its end; {so_far}"
    return Repetition(of, made, cut, rows, circumstances)


def _compare_metrics(of: Run, made: Run, end: Place | None) -> tuple[str, str | None]:
    """How many rows there were to compare, and where they differ first."""
    first, second = _rows(of, end), _rows(made, end)
    told = f"{len(first):,} row{'s' * (len(first) != 1)}"
    for one, other in zip(first, second, strict=False):
        for name in dict.fromkeys([*one, *other]):
            if not _same(one.get(name), other.get(name)):
                where = f"epoch {one.get(EPOCH, '?')}, {one.get(ENV_STEPS, 0):,} env steps"
                return told, f"{name} at {where}: {_number(one.get(name))} there, {_number(other.get(name))} here"
    if len(first) != len(second):
        return told, f"{SHOWN} has {len(first):,} rows there and {len(second):,} here; those that both have are equal"
    return told, None


def _rows(run: Run, end: Place | None) -> list[dict[str, float]]:
    """Rows of the metrics up to a place, without the clock's."""
    table = {name: values for name, values in run.metrics.items() if not name.startswith(CLOCKS)}
    count = max(map(len, table.values()), default=0)
    rows = [{name: values[i] for name, values in table.items() if values[i] is not None} for i in range(count)]
    known: list[dict[str, float]] = [{name: value for name, value in row.items() if value is not None} for row in rows]
    if end is None:
        return known
    # The row of an epoch that was broken off is no row of the run that went on.
    return [row for row in known if row.get(ENV_STEPS, 0) <= end.env_steps and row.get(EPOCH, 0) <= end.epoch]


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def _number(value: float | None) -> str:
    return "nothing" if value is None else repr(value)


def _compare_models(of: Run, made: Run) -> str | None:
    first, second = of.checkpoints.find(), made.checkpoints.find()
    places = [Place.of(checkpoint) for checkpoint in (first, second)]
    if places[0].counts != places[1].counts:
        ends = " and ".join(f"{place.env_steps:,} env steps, {place.updates:,} updates" for place in places)
        return f"the last checkpoints are of different places: {ends}"
    one, other = first.read_model(), second.read_model()
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            return f"the model has {name} only {'there' if name in one else 'here'}"
        if one[name].dtype != other[name].dtype or not _same_bits(one[name], other[name]):
            return f"the model: {name} is not the same"
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)
    )


def _compare_results(of: Run, made: Run) -> str | None:
    """The last evaluations, where both have one."""
    one, other = of.result, made.result
    for name in EVALUATION:
        if name in one and name in other and not _same(one[name], other[name]):
            return f"{name} of the last evaluation: {one[name]} there, {other[name]} here"
    return None
