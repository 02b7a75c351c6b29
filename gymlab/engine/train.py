"""One training from a config to a finished run directory."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

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
from gymlab.engine.faults import disk_watched, write_evidence
from gymlab.engine.files import write_json
from gymlab.engine.links import refuse_links_out
from gymlab.engine.lock import run_lock, this_process
from gymlab.engine.orchestrator import Orchestrator
from gymlab.engine.origin import EnvKwargs, named_again
from gymlab.engine.resume import changed_settings, check_files, rewind, split_tunable, write_config
from gymlab.engine.run import CONFIG, STARTED, Run, find_run, refuse_if_training, versions
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
    return from_dict(run.config_data, lambda algo: find_workflow(algo).Config)


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
) -> Run:
    """Train, and leave a run directory whatever happens: finished, stopped or crashed with its reason."""
    started = time.time()
    session = prepare(config)
    try:
        if not session.fabric.is_global_zero:
            return _train_beside(session)
        run = Run.create(runs_dir, config, run_id)
        if session.fabric.world_size > 1:
            session.fabric.broadcast(str(run.dir))
        with disk_watched(run), run_lock(run.dir), session.stop_signal:
            for name in (STARTED, CONFIG):
                write_json(run.dir / name, redact(dump(config)))
            run.update_record(started=started, **_identity(session, command and redact_text(command)))
            return _train_in(run, session, notices)
    finally:
        session.close()


def resume(run: Run, which: str, config: Config, *, tuned: Collection[str] = (), notices: Sequence[str] = ()) -> Run:
    """Go on with a run from one of its checkpoints, with a config that differs only in what may change.

    Hyperparameters that it names (`tuned`) or that differ change at the start of the first epoch, as if asked for with `gymlab set`.
    """
    refuse_links_out(run.dir)
    check_files(run)
    refuse_if_training(run)
    before = stored_config(run)
    config, asked = split_tunable(before, config, tuned)
    changes = changed_settings(before, config)
    session = prepare(config, backend=run.record.get("backend"))
    try:
        if not session.fabric.is_global_zero:
            return _train_beside(session, resumed=True)
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
            lost = {name: value for name, value in _identity(session, None).items() if name not in record}
            sitting = {"time": time.time(), "from": checkpoint.name}
            run.update_record(**lost, resumed=[*(record.get("resumed") or []), sitting])
            told = [f"Resumed from {checkpoint.name}.", *(f"Changed: {change}" for change in changes)]
            if session.fabric.world_size > 1:
                session.fabric.broadcast(str(checkpoint.path))
                told.append("The first process goes on where it was; the others begin with fresh episodes.")
            return _train_in(run, session, [*notices, *told], checkpoint)
    finally:
        session.close()


def _train_beside(session: Session, *, resumed: bool = False) -> Run:
    """What the further processes of a distributed training do: the same steps, and nothing on disk or screen."""
    # The first process says where the run is or, to go on with one, from which of its checkpoints.
    told = Path(session.fabric.broadcast(""))
    run = Run(told.parents[1] if resumed else told)
    with Monitor([]) as monitor, session.stop_signal, TemporaryDirectory(prefix=".replay-", dir=run.dir) as scratch:
        attach_buffers(session.buffers, ChunkFiles(Path(scratch)))
        callbacks = [LiveChanges(None), Schedules(), Plateau(session.config.plateau_interventions)]
        loop = Orchestrator(session, callbacks, Recorder(), monitor, run.checkpoints)
        if resumed:
            restore_shared(loop, Checkpoint(told))
        elif session.config.init_from_run is not None:
            _transfer(session.config, run.dir.parent, session, monitor)
        loop.run()
    return run


def _identity(session: Session, command: str | None) -> dict[str, object]:
    """What the record says about what is trained; a resumed run that lost its record gets it anew."""
    config = session.config
    return {
        "command": command or default_command(config),
        "experiment": f"{config.project_id or config.env_id}:{config.variant or config.algo_id}",
        "seed": config.seed,
        "backend": session.environment.backend,
        "stepped_by": session.environment.stepped_by,
    }


def default_command(config: Config) -> str:
    """The command line that repeats this training."""
    return f"gymlab train {config.project_id or config.env_id}:{config.variant or config.algo_id} --seed {config.seed}"


def _train_in(run: Run, session: Session, notices: Sequence[str], checkpoint: Checkpoint | None = None) -> Run:
    # What an earlier sitting ended with would be taken for this one's if it were killed.
    ended = {"reason": None, "ended": None, "result": None}
    run.update_record(status="running", **this_process(), **ended, versions=versions())
    run.mark_last()
    threshold = return_threshold(session)
    try:
        with _open_monitor(run, session.config, threshold) as monitor:
            loop = _run_loop(run, session, monitor, notices, checkpoint, threshold)
            status = "stopped" if loop.stopped else "finished"
            run.update_record(status=status, reason=loop.stop_reason, ended=time.time(), best_return=loop.best_score)
    except BaseException as error:
        # Where the disk is full this cannot be written either: a run whose process is gone counts as crashed anyway.
        with suppress(OSError, GymlabError):
            run.update_record(status="crashed", reason=_reason(error), ended=time.time())
        raise
    return run


def _run_loop(
    run: Run,
    session: Session,
    monitor: Monitor,
    notices: Sequence[str],
    checkpoint: Checkpoint | None,
    threshold: float | None,
) -> Orchestrator:
    """Train to the end, from a checkpoint if there is one; what ends it early is written down where people look."""
    config = session.config
    for notice in notices:
        monitor.notice(notice)
    monitor.show(_plan(session))
    if session.environment.notice:
        monitor.show(session.environment.notice)
    checkpoints = CheckpointManager(run.dir / "checkpoints", config.keep_checkpoints)
    callbacks = _callbacks(run, session, threshold, monitor.styles)
    loop = Orchestrator(session, callbacks, Recorder(), monitor, checkpoints)
    try:
        attach_buffers(session.buffers, checkpoints.chunk_store)
        if checkpoint is not None:
            restore(loop, checkpoint)
        elif config.init_from_run is not None:
            _transfer(config, run.dir.parent, session, monitor)
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


def _transfer(config: Config, runs_dir: Path, session: Session, monitor: Monitor) -> None:
    """Start from another run's parameters, or from some of its parts; optimizers and counters start fresh."""
    assert config.init_from_run is not None
    parts = None if not config.init_parts else _parts(session.workflow.modules, config.init_parts)
    source, which = find_run(config.init_from_run, runs_dir)
    checkpoint, model = source.checkpoints.read(which, lambda checkpoint: (checkpoint, checkpoint.read_model()))
    load_model(session.workflow, model, where=str(checkpoint.path), parts=parts)
    taken = "" if parts is None else f" ({', '.join(parts)})"
    monitor.notice(f"Parameters{taken} taken from {source.id}/{checkpoint.name}.")


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
    callbacks.append(
        EarlyStop(
            on_eval=_threshold_for(config.early_stop_on_eval_threshold, threshold),
            on_train=_threshold_for(config.early_stop_on_train_threshold, threshold),
        )
    )
    callbacks.append(Checkpoints(config.checkpoint_minutes, evaluates=bool(config.eval_freq_epochs)))
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
