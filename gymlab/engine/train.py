"""One training from a config to a finished run directory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.config import dump, from_dict
from gymlab.config.schema import Config
from gymlab.engine.agent import load_model
from gymlab.engine.callbacks.alerts import Alerts
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.callbacks.checkpoint import Checkpoints
from gymlab.engine.callbacks.early_stop import EarlyStop
from gymlab.engine.callbacks.episodes import KeptEpisodes
from gymlab.engine.callbacks.evaluation import Evaluation
from gymlab.engine.callbacks.live_changes import LiveChanges
from gymlab.engine.callbacks.plateau import Plateau
from gymlab.engine.callbacks.report import Report
from gymlab.engine.callbacks.schedules import Schedules
from gymlab.engine.callbacks.video import Videos
from gymlab.engine.changes import BY_RESUME, ChangeLog, ask
from gymlab.engine.checkpoint import Checkpoint, CheckpointManager
from gymlab.engine.chunk_store import attach_buffers
from gymlab.engine.evaluation import changed_task, shortened_episodes
from gymlab.engine.faults import disk_watched, write_evidence
from gymlab.engine.files import write_json
from gymlab.engine.legs import Leg, Place
from gymlab.engine.links import refuse_links_out
from gymlab.engine.lock import delete_run, run_lock, this_process
from gymlab.engine.machine import machine
from gymlab.engine.manifest import MODEL
from gymlab.engine.orchestrator import Orchestrator
from gymlab.engine.origin import EnvKwargs, arguments_to_name, named_again
from gymlab.engine.report import repeat_command
from gymlab.engine.resume import changed_settings, check_files, rewind, settings_before, split_tunable, write_config
from gymlab.engine.run import CONFIG, STARTED, Run, find_run, refuse_if_training, sitting_times, versions, wall_seconds
from gymlab.engine.setup import Session, prepare
from gymlab.engine.snapshot import restore, restore_shared
from gymlab.engine.workflow import find_workflow
from gymlab.errors import ConfigError, GymlabError, NonFiniteError, did_you_mean
from gymlab.metrics.monitor import Monitor
from gymlab.metrics.recorder import Recorder
from gymlab.metrics.redact import redact, redact_text
from gymlab.metrics.setup import open_monitor
from gymlab.metrics.styles import MetricStyles


def run_config(run: Run, env_kwargs: EnvKwargs = ()) -> Config:
    """The config of a run, to build from: it may come from somebody else, so files that it names are refused unless `env_kwargs` name them again."""
    return named_again(stored_config(run), env_kwargs, place=str(run.config_path))


def stored_config(run: Run) -> Config:
    """The validated config of a run as it was written, to look at: environments are made of `run_config`."""
    return config_from(run.config_data)


def config_from(data: Mapping[str, Any]) -> Config:
    """The validated config of what a run wrote of one."""
    return from_dict(data, lambda algo: find_workflow(algo).Config)


def return_threshold(session: Session) -> float | None:
    """The return that means solved: the config's, the experiment's spec, or what the environment registers."""
    declared = session.config.solved_threshold
    return session.environment.get_return_threshold() if declared is None else declared


def train(
    config: Config,
    *,
    runs_dir: Path,
    run_id: str | None = None,
    command: str | None = None,
    notices: Sequence[str] = (),
    plugins: Sequence[str] = (),
    leg: Leg | None = None,
) -> Run:
    """Train, and leave a run directory whatever happens: finished, stopped or crashed with its reason.

    `leg`: this is the first part of a repetition.
    """
    started = time.time()
    config, first = _first_model(config, runs_dir if leg is None else leg.runs_dir)
    session = _prepare(config, leg)
    try:
        if not session.fabric.is_global_zero:
            return _train_beside(session, first, leg=leg)
        run = Run.create(runs_dir, config, run_id) if leg is None else Run.create_repetition(runs_dir, leg.of, run_id)
        if session.fabric.world_size > 1:
            session.fabric.broadcast(str(run.dir))
        with disk_watched(run), run_lock(run.dir), session.stop_signal:
            data, changes = redact(dump(config)), () if leg is None else leg.changes
            write_json(run.dir / STARTED, data)
            write_json(run.dir / CONFIG, data | {change.name: change.to for change in changes})
            if changes:
                ChangeLog(run.dir).append(changes)
            how = {
                "command": command and redact_text(command),
                "plugins": [redact_text(name) for name in plugins],
                "named_files": [redact_text(text) for text in arguments_to_name(config)],
                "repeats": None if leg is None else leg.of,
            }
            known = {name: value for name, value in how.items() if value}
            run.update_record(started=started, **_identity(session), **known)
            return _train_in(run, session, notices, first, leg)
    finally:
        session.close()


def _prepare(config: Config, leg: Leg | None) -> Session:
    return prepare(config) if leg is None else prepare(config, backend=leg.backend, threads=leg.threads, resumed=True)


@dataclass(frozen=True)
class FirstModel:
    """Parameters of another run that a training begins with."""

    run: str
    checkpoint: Checkpoint
    tensors: dict[str, Tensor]
    sha256: str


def _first_model(config: Config, runs_dir: Path) -> tuple[Config, FirstModel | None]:
    """What `init_from_run` means at this moment; the config names it to the checkpoint, as `@last` and `@best` mean another one later."""
    if config.init_from_run is None:
        return config, None
    source, which = find_run(config.init_from_run, runs_dir)
    found = source.checkpoints.read(
        which,
        lambda checkpoint: FirstModel(
            source.id, checkpoint, checkpoint.read_model(), checkpoint.manifest.files[MODEL]["sha256"]
        ),
    )
    place = source.id if source.dir.parent == runs_dir else str(source.dir)
    name = f"{place}/{found.checkpoint.name.removesuffix('.ckpt')}"
    return config.model_copy(update={"init_from_run": name}), found


def resume(
    run: Run,
    which: str,
    config: Config,
    *,
    tuned: Collection[str] = (),
    notices: Sequence[str] = (),
    leg: Leg | None = None,
) -> Run:
    """Go on with a run from one of its checkpoints, with a config that differs only in what may change.

    Hyperparameters that it names (`tuned`) or that differ change at the start of the first epoch, as if asked for with `gymlab set`.
    `leg`: this is a further part of a repetition.
    """
    refuse_links_out(run.dir)
    check_files(run)
    if leg is None:
        refuse_if_training(run)
    before = stored_config(run)
    config, asked = split_tunable(before, config, tuned)
    changes = changed_settings(before, config)
    record = run.record
    threads = (record.get("machine") or {}).get("threads")
    session = prepare(config, backend=record.get("backend"), threads=threads, resumed=True)
    try:
        if not session.fabric.is_global_zero:
            return _train_beside(session, resumed=True, leg=leg)
        with disk_watched(run), run_lock(run.dir), session.stop_signal:
            run.checkpoints.recover()
            checkpoint = run.checkpoints.find(which, resumable=True)
            # A checkpoint of another network is refused before anything that came after it is cut.
            load_model(session.workflow, checkpoint.read_model(), where=str(checkpoint.path))
            if asked:
                ask(run.dir, config, asked, BY_RESUME)
            rewind(run, checkpoint)
            write_config(run, redact(dump(config)))
            record = run.record
            lost = {name: value for name, value in _identity(session).items() if name not in record}
            sitting = {
                "time": time.time(),
                "from": checkpoint.name,
                "at": Place.of(checkpoint).to_json(),
                "changed": redact(settings_before(before, config)),
                **{name: record[name] for name in ("versions", "machine") if record.get(name)},
            }
            run.update_record(**lost, resumed=[*(record.get("resumed") or []), sitting])
            told = [f"Resumed from {checkpoint.name}.", *(f"Changed: {change}" for change in changes)]
            if session.fabric.world_size > 1:
                session.fabric.broadcast(str(checkpoint.path))
                told.append("The first process goes on where it was; the others begin with fresh episodes.")
            return _train_in(run, session, [*notices, *told], checkpoint, leg)
    finally:
        session.close()


def _train_beside(
    session: Session, first: FirstModel | None = None, *, resumed: bool = False, leg: Leg | None = None
) -> Run:
    """What the further processes of a distributed training do: the same steps, and nothing on disk or screen."""
    # The first process says where the run is or, to go on with one, from which of its checkpoints.
    told = Path(session.fabric.broadcast(""))
    run = Run(told.parents[1] if resumed else told)
    with Monitor([]) as monitor, session.stop_signal, TemporaryDirectory(prefix=".replay-", dir=run.dir) as scratch:
        attach_buffers(session.buffers, ChunkFiles(Path(scratch)))
        callbacks = [LiveChanges(None), Schedules(), Plateau(session.config.plateau_interventions)]
        stop_at = None if leg is None else leg.stop_at
        loop = Orchestrator(session, callbacks, Recorder(), monitor, run.checkpoints, stop_at)
        if resumed:
            restore_shared(loop, Checkpoint(told))
        elif first is not None:
            _transfer(first, session, monitor)
        loop.run()
    return run


def _identity(session: Session) -> dict[str, object]:
    """What the record says about what is trained; a resumed run that lost its record gets it anew."""
    config = session.config
    return {
        "experiment": f"{config.project_id or config.env_id}:{config.variant or config.algo_id}",
        "seed": config.seed,
        "backend": session.environment.backend,
        "stepped_by": session.environment.stepped_by,
    }


def _train_in(
    run: Run,
    session: Session,
    notices: Sequence[str],
    start: Checkpoint | FirstModel | None,
    leg: Leg | None,
) -> Run:
    # What an earlier sitting ended with would be taken for this one's if it were killed.
    ended = {"reason": None, "ended": None, "result": None}
    environment = session.environment
    computed = {
        "machine": machine(session.fabric.device),
        "by_turns": environment.by_turns,
        "workers": getattr(environment, "num_workers", None),
    }
    run.update_record(
        status="running", **this_process(), **ended, **sitting_times(run), versions=versions(), **computed
    )
    run.update_record(repeat=repeat_command(run))
    threshold = return_threshold(session)
    try:
        monitor = _open_monitor(run, session.config, threshold)
    except BaseException as error:
        if not isinstance(start, Checkpoint):
            # A tracker that did not start: nothing was trained, so there is no run.
            delete_run(run.dir)
        else:
            run.update_record(
                status="crashed", reason=_reason(error), ended=time.time(), wall_seconds=wall_seconds(run)
            )
        raise
    run.mark_last()
    try:
        with monitor:
            loop = _run_loop(run, session, monitor, notices, start, threshold, leg)
            status = "stopped" if loop.stopped else "finished"
            # Between two parts of a repetition there is no report that would have written the time down.
            wall = {} if leg is None or leg.is_last else {"wall_seconds": wall_seconds(run)}
            run.update_record(
                status=status, reason=loop.stop_reason, ended=time.time(), best_return=loop.best_score, **wall
            )
    except BaseException as error:
        # Where the disk is full this cannot be written either: a run whose process is gone counts as crashed anyway.
        with suppress(OSError, GymlabError):
            run.update_record(
                status="crashed", reason=_reason(error), ended=time.time(), wall_seconds=wall_seconds(run)
            )
        raise
    return run


def _run_loop(
    run: Run,
    session: Session,
    monitor: Monitor,
    notices: Sequence[str],
    start: Checkpoint | FirstModel | None,
    threshold: float | None,
    leg: Leg | None,
) -> Orchestrator:
    """Train to the end, from a checkpoint if there is one; what ends it early is written down where people look."""
    config = session.config
    for notice in (*notices, *session.notices):
        monitor.notice(notice)
    monitor.show(_plan(session))
    if session.environment.notice:
        monitor.show(session.environment.notice)
    checkpoints = CheckpointManager(run.dir / "checkpoints", config.keep_checkpoints)
    callbacks = _callbacks(run, session, threshold, monitor.styles)
    if leg is not None and not leg.is_last:
        callbacks = [callback for callback in callbacks if not isinstance(callback, Report)]
    loop = Orchestrator(session, callbacks, Recorder(), monitor, checkpoints, None if leg is None else leg.stop_at)
    try:
        attach_buffers(session.buffers, checkpoints.chunk_store)
        if isinstance(start, Checkpoint):
            restore(loop, start)
        elif start is not None:
            _transfer(start, session, monitor)
            run.update_record(first_model=start.sha256)
        loop.run()
    except BaseException as error:
        if isinstance(error, NonFiniteError):
            write_evidence(error, run, session.counters)
        monitor.log_text(f"crashed: {_reason(error)}")
        raise
    finally:
        loop.close()
    return loop


def _reason(error: BaseException) -> str:
    """What ended a run, in a line that may be written down."""
    return redact_text(f"{type(error).__name__}: {error}")


def _transfer(first: FirstModel, session: Session, monitor: Monitor) -> None:
    """Start from another run's parameters, or from some of its parts; optimizers and counters start fresh."""
    wanted = session.config.init_parts
    parts = None if not wanted else _parts(session.workflow.modules, wanted)
    load_model(session.workflow, first.tensors, where=str(first.checkpoint.path), parts=parts)
    taken = "" if parts is None else f" ({', '.join(parts)})"
    monitor.notice(f"Parameters{taken} taken from {first.run}/{first.checkpoint.name}.")


def _parts(modules: Collection[str], wanted: Collection[str]) -> list[str]:
    """Modules by the names of parts; the slow copy of a part comes with it."""
    for part in wanted:
        if part not in modules:
            raise ConfigError(
                f"init_parts: no part {part!r}. {did_you_mean(part, modules)}\nParts: {', '.join(modules)}."
            )
    return [name for name in modules if name.removeprefix("slow_") in wanted or name in wanted]


def _threshold_for(setting: bool | float, threshold: float | None) -> float | None:
    if setting is False:
        return None
    return threshold if setting is True else float(setting)


def _callbacks(run: Run, session: Session, threshold: float | None, styles: MetricStyles) -> list[Callback]:
    config = session.config
    log = ChangeLog(run.dir)
    callbacks: list[Callback] = [LiveChanges(run), Schedules(), Plateau(config.plateau_interventions, log)]
    if config.eval_freq_epochs:
        callbacks.append(Evaluation(config.eval_freq_epochs, config.eval_warmup_epochs))
    callbacks.append(Alerts(run.dir, threshold, styles, enabled=config.alerts))
    of_task = None if changed_task(config) else threshold
    callbacks.append(
        EarlyStop(
            on_eval=_threshold_for(
                config.early_stop_on_eval_threshold, None if shortened_episodes(config) else of_task
            ),
            on_train=_threshold_for(
                config.early_stop_on_train_threshold, None if shortened_episodes(config, training=True) else of_task
            ),
        )
    )
    callbacks.append(Checkpoints(config.checkpoint_minutes))
    if config.video or config.eval_recording_freq_epochs:
        callbacks.append(Videos(run.dir / "videos", config.eval_recording_freq_epochs, config.video_max_seconds))
    callbacks.append(Report(run, threshold))
    if config.keep_episodes:
        # Behind the report, whose evaluation is the last of the run.
        callbacks.append(KeptEpisodes(run.dir, config.keep_episodes))
    return callbacks


def _open_monitor(run: Run, config: Config, threshold: float | None) -> Monitor:
    return open_monitor(
        run.dir,
        run_id=run.id,
        title=f"{run.record['experiment']}  seed {config.seed}",
        project=config.project_id or config.env_id,
        config=run.config_data,
        budget=config.max_env_steps,
        threshold=threshold,
        quiet=config.quiet,
        tensorboard=config.enable_tensorboard,
        wandb=config.enable_wandb,
    )


def _plan(session: Session) -> str:
    """The derived numbers, said before they happen."""
    config, told = session.config, session.workflow.describe()
    parameters = sum(value for name, value in told.items() if name.count("/") == 1 and name.startswith("parameters/"))
    memory = sum(value for name, value in told.items() if name.endswith("_memory_bytes"))
    parts = [
        f"{config.env_id} × {config.n_envs} ({session.environment.stepped_by})",
        f"{parameters:,} parameters",
        *(
            f"{name.replace('_', ' ')} {_short(told[name])}"
            for name in told
            if "/" not in name and not name.endswith("_bytes")
        ),
        f"buffers {memory / 2**20:.1f} MB",
        f"budget {config.max_env_steps:,} env steps" if config.max_env_steps else "no budget",
    ]
    return " · ".join(parts)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
