"""The loop: asks the scheduler, calls the hook, routes the data, counts, logs, saves. It knows no algorithm."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from gymlab.engine import snapshot
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.evaluation import EvaluationResult, Limits, evaluate
from gymlab.engine.phases import Action
from gymlab.engine.signals import REPEATED
from gymlab.engine.statistics import EpisodeStatistics
from gymlab.engine.workflow import CollectResult, UpdateResult
from gymlab.errors import NonFiniteError
from gymlab.metrics import names
from gymlab.metrics.names import prefixed
from gymlab.metrics.recorder import Recorder
from gymlab.metrics.results import judge

if TYPE_CHECKING:
    from gymlab.engine.checkpoint import CheckpointManager
    from gymlab.engine.legs import Place
    from gymlab.engine.setup import Session
    from gymlab.envs.vector import VectorEnv
    from gymlab.metrics.monitor import Monitor

MEMORY_EVERY_SECONDS = 1.0
STOPPED = "stopped by "
"""How the reason of a run begins that a signal has ended."""
MUST_BE_FINITE = ("train/loss/", "train/opt/grads/")
"""Metrics that mean a broken model when they are not finite."""


class Orchestrator:
    """Runs one session from where it is to its end."""

    def __init__(
        self,
        session: Session,
        callbacks: Sequence[Callback],
        recorder: Recorder,
        monitor: Monitor,
        checkpoints: CheckpointManager,
        stop_at: Place | None = None,
    ) -> None:
        self.session = session
        self.stop_at = stop_at
        """Where to stop: what a repetition has of the run that it repeats."""
        self.config = session.config
        self.processes = session.fabric.world_size
        self.workflow = session.workflow
        self.scheduler = session.scheduler
        self.buffers = session.buffers
        self.counters = session.counters
        self.hyperparameters = session.hyperparameters
        self.callbacks = callbacks
        self.recorder = recorder
        self.monitor = monitor
        self.checkpoints = checkpoints
        self.stop_signal = session.stop_signal
        self.statistics = EpisodeStatistics()
        self.stop_reason: str | None = None
        self.best_score: float | None = None
        self.video: Path | None = None
        self.seconds_before = 0.0
        self.cpu_seconds_before = 0.0
        self.training_seconds = 0.0
        self.epoch_began: int | None = None
        """Env steps at which the epoch that is going on began; None between epochs."""
        self.epoch_ending = False
        """Whether a signal cut the evaluation at an epoch's end short: a resumed run begins with it, as if it had never stopped."""
        self.cut: dict[str, Any] | None = None
        """The hook that a signal cut short, and how often it had asked whether to stop: a place within it."""
        self._evaluation_cut = False
        self._unfinished_told = False
        self._evaluation_environment: VectorEnv | None = None
        self._process = psutil.Process()
        self._memory_read_at = 0.0

    def run(self) -> str:
        """Train until the curriculum, the budget, a callback or a signal ends it; says which."""
        self._start = self._epoch_started_at = time.perf_counter()
        self._cpu_start = time.process_time()
        self.monitor.set_phase(self._phase_name)
        for callback in self.callbacks:
            callback.on_start(self)
        if self.epoch_ending:
            self._end_epoch()
        while self.stop_reason is None and not self._stops_here():
            action = self.scheduler.next_action()
            if action is None:
                self.stop_reason = "finished"
                break
            self._begin_epoch()
            if self._perform(action) and self._epoch_ended():
                self._end_epoch()
            if self.scheduler.phase_ended is not None:
                for callback in self.callbacks:
                    callback.on_phase_end(self, self.scheduler.phase_ended)
                self.monitor.set_phase(self._phase_name)
            # Several processes stop together, at an epoch's end: there is nothing half done then that only one of them saves.
            if self.stop_signal.requested and (self.processes == 1 or self.epoch_began is None):
                self.request_stop(f"{STOPPED}{self.stop_signal.name}")
            if self.processes > 1:
                # The first process evaluates and is sent signals: the others stop when it does.
                self.stop_reason = self.session.fabric.broadcast(self.stop_reason)
        self.training_seconds = self.seconds
        self._log_open_epoch()
        for callback in self.callbacks:
            callback.on_stop(self)
        assert self.stop_reason is not None
        return self.stop_reason

    def _stops_here(self, *, epoch_ending: bool = False) -> bool:
        """Stop if this is where the run that is repeated did; within a hook, `StopSignal` does."""
        place = self.stop_at
        if place is None or not place.is_passed_by(self.counters):
            return False
        if place.is_at(self.counters) and (place.hook or place.epoch_ending != epoch_ending):
            return False
        self.epoch_ending = epoch_ending
        self.stop_signal.request(REPEATED)
        self.request_stop(f"{STOPPED}{self.stop_signal.name}")
        return True

    @property
    def _phase_name(self) -> str:
        return "" if self.scheduler.finished else self.scheduler.phase.name

    def request_stop(self, reason: str) -> None:
        """End the run after the current action; the first reason stands."""
        if self.stop_reason is None:
            self.stop_reason = reason

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the run before it was over."""
        return self.stop_reason is not None and self.stop_reason.startswith(STOPPED)

    def note_late_signal(self) -> None:
        """Make a signal that cut the last evaluation short the reason: the run is not whole, and is resumed to end it."""
        if self.stop_signal.requested and not self.stopped:
            self.stop_reason = f"{STOPPED}{self.stop_signal.name} after training, before the last evaluation was over"

    @property
    def seconds(self) -> float:
        """Wall time spent in the loop, start-up not counted, over all sittings of the run."""
        return self.seconds_before + time.perf_counter() - self._start

    @property
    def cpu_seconds(self) -> float:
        """Processor time of this process meanwhile."""
        return self.cpu_seconds_before + time.process_time() - self._cpu_start

    def _begin_epoch(self) -> None:
        if self.epoch_began is not None:
            return
        self.epoch_began = self.counters.env_steps
        self._epoch_started_at = time.perf_counter()
        for callback in self.callbacks:
            callback.on_epoch_start(self)

    def _perform(self, action: Action) -> bool:
        """Call the hook, route what it gathered, count what it did; False when a signal cut it short."""
        env_steps = updates = 0
        self.stop_signal.looks, self.cut = 0, None
        if self.stop_at is not None:
            cut_here = action.hook == self.stop_at.hook and self.stop_at.is_at(self.counters)
            self.stop_signal.last_look = self.stop_at.looks if cut_here else 0
        if action.hook == "evaluate":
            if self.session.fabric.is_global_zero:
                self.evaluate()
                if self._evaluation_cut:
                    return False
        elif action.collects:
            result = getattr(self.workflow, action.hook)(action.view)
            if result.interrupted:
                if not result.begins_anew:
                    self.cut = {"hook": action.hook, "looks": self.stop_signal.looks}
                return False
            env_steps = self._take_in(result, action)
        else:
            updates = self._update(action)
        self.scheduler.advance(action, env_steps=env_steps, updates=updates)
        return True

    def _take_in(self, result: CollectResult, action: Action) -> int:
        counters = self.counters
        env_steps = result.env_steps * self.processes
        counters.env_steps += env_steps
        counters.frames += env_steps * self.config.frame_skip + self.processes * self._frames_beside(result)
        counters.vec_steps += result.vec_steps
        counters.episodes += len(result.episodes)
        self.statistics.update(result.episodes)
        if result.trajectory is not None and action.buffer is not None:
            self.buffers[action.buffer].add(result.trajectory)
        self.recorder.record_means(result.metrics)
        return env_steps

    def _frames_beside(self, result: CollectResult) -> int:
        """Frames of the episodes that ended by which they are more, or fewer, than `frame_skip` a step: a step that ends an episode skips no more."""
        skip = self.config.frame_skip
        return sum(ended.frames - ended.length * skip for ended in result.episodes if ended.frames is not None)

    def _update(self, action: Action) -> int:
        buffer = None if action.buffer is None else self.buffers[action.buffer]
        if buffer is not None and not buffer.ready():
            return 0
        batch = None if buffer is None else buffer.sample()
        try:
            result: UpdateResult = getattr(self.workflow, action.hook)(batch, action.view)
        except NonFiniteError as error:
            error.data["batch"] = batch
            raise
        if buffer is not None and result.write_back is not None:
            buffer.write_back(result.write_back)
        self.counters.updates += result.updates
        self.recorder.record_means(result.metrics)
        return result.updates

    def _epoch_ended(self) -> bool:
        length = self.config.epoch_env_steps
        if length is None:
            return self.scheduler.cycle_ended
        return self._epoch_steps >= length or self.scheduler.phase_ended is not None

    @property
    def _epoch_steps(self) -> int:
        return self.counters.env_steps - (self.epoch_began or 0)

    def _end_epoch(self) -> None:
        if self._stops_here(epoch_ending=True):
            return
        self.counters.epoch += 1
        self._record_progress()
        for callback in self.callbacks:
            callback.on_epoch_end(self)
        self.epoch_ending = self._evaluation_cut
        if self.epoch_ending:
            self.counters.epoch -= 1
            return
        self.epoch_began = None
        self.statistics.end_epoch()
        row = self.recorder.flush()
        if self.processes > 1:
            row = self.session.fabric.broadcast(row)
        for callback in self.callbacks:
            callback.on_metrics(self, row)
        _check_losses(row)
        self.monitor.log(row, self.counters)
        self.scheduler.observe(row)
        for callback in self.callbacks:
            callback.on_row(self, row)
        self.video = None
        if self.config.max_epochs is not None and self.counters.epoch >= self.config.max_epochs:
            self.request_stop("finished")

    def _log_open_epoch(self) -> None:
        """Log the epoch that the end of the run broke off: the next one's number on its row, and nothing that a resumed run goes on with is changed."""
        if self.epoch_began is None:
            return
        recorded = self.recorder.get_state()
        if not self._epoch_steps and not recorded["mean"]:
            return  # It had only begun.
        kept, self.recorder = self.recorder, Recorder()
        self.recorder.set_state(recorded)
        self._record_progress()
        row = self.recorder.flush()
        self.recorder = kept
        _check_losses(row)
        self.monitor.log({**row, names.EPOCH: self.counters.epoch + 1}, self.counters)

    def _record_progress(self) -> None:
        record = self.recorder.record
        for name, value in self.statistics.metrics().items():
            record(prefixed("train", f"roll/{name}"), value)
        for name, value in self.statistics.of_epoch().items():
            record(prefixed("train", f"collect/{name}"), value)
        now = time.perf_counter()
        record(names.WALL_SECONDS, self.seconds)
        record(names.CPU_SECONDS, self.cpu_seconds)
        record(names.STEPS_PER_SECOND, self._epoch_steps / max(now - self._epoch_started_at, 1e-9))
        if now - self._memory_read_at >= MEMORY_EVERY_SECONDS:
            self._memory_read_at = now
            record(names.MEMORY_MB, self._process.memory_info().rss / 2**20)

    def evaluate(self) -> EvaluationResult:
        """Evaluate on the validation stream and record `val/...`; the same episodes each time."""
        self.monitor.set_phase("evaluation")
        if self._evaluation_environment is None:
            self._evaluation_environment = self.session.make_evaluation_environment("val", self.config.eval_episodes)
        result = self.play(self._evaluation_environment, "evaluation")
        cut = self.stop_signal.requested and not result.complete
        # The processes of a distributed run end their epochs together: there the evaluation is given up instead.
        self._evaluation_cut = cut and self.processes == 1
        summary = judge(result.summary())
        if result.n and not cut:
            record = self.recorder.record
            record(names.episode_return("val"), summary["mean"])
            for bound, value in zip(("ci95_low", "ci95_high"), summary["ci95"] or (), strict=False):
                record(names.episode_return("val", bound), value)
            record(names.episode_return("val", "best"), summary["max"])
            record(names.episode_length("val"), summary["ep_len"])
            record(names.episode_count("val"), result.n)
            for name, value in result.told.items():
                record(prefixed("val", f"roll/{name}"), value)
            record(names.EVAL_SECONDS, result.seconds)
        if not result.complete and not cut:
            self.recorder.record(names.unfinished_count("val"), result.asked - result.n)
            self._tell_unfinished(summary["note"])
        self.monitor.set_phase(self._phase_name)
        return result

    def play(self, environment: VectorEnv, phase: str) -> EvaluationResult:
        """Play the episodes of an evaluation within the config's limits, and show how far it is."""
        asked = self.config.eval_episodes

        def progress(finished: int, steps: int) -> None:
            self.monitor.set_phase(f"{phase} {finished}/{asked} episodes, {steps:,} steps each")

        return evaluate(
            self.workflow,
            environment,
            asked,
            deterministic=self.config.eval_deterministic,
            seeds=self.session.seeds,
            limits=Limits.of(self.config),
            should_stop=lambda: self.stop_signal.requested,
            progress=progress,
        )

    def _tell_unfinished(self, note: str) -> None:
        """Once on the screen, each time in run.log."""
        told = f"Evaluation at {self.counters.env_steps:,} env steps: {note}."
        if self._unfinished_told:
            self.monitor.log_text(told)
            return
        self._unfinished_told = True
        self.monitor.notice(
            f"{told} Unfinished evaluations choose no best checkpoint and stop no run; eval_step_limit and eval_time_limit "
            "are where they give up."
        )

    def save_checkpoint(self, row: dict[str, float], *, best: bool) -> None:
        """Write everything that going on from here needs."""
        self.monitor.flush()
        written = self.checkpoints.save(
            epoch=self.counters.epoch,
            env_steps=self.counters.env_steps,
            mid_epoch=self.epoch_began is not None,
            metrics=row,
            best=best,
            video=self.video,
            **snapshot.take(self),
        )
        self.monitor.checkpoint(f"checkpoint {written.name}{' (best)' if best else ''}")

    def close(self) -> None:
        """Release what the loop opened itself."""
        if self._evaluation_environment is not None:
            self._evaluation_environment.close()


def _check_losses(row: dict[str, float]) -> None:
    """Stop a run whose workflow let a broken loss or gradient pass, before anything of it is saved."""
    for name, value in row.items():
        if not isfinite(value) and name.startswith(MUST_BE_FINITE):
            raise NonFiniteError(
                f"{name} is {value} in epoch {row.get(names.EPOCH, '?')}. A lower learning rate or max_grad_norm usually helps.",
                tensor=name,
                data={"metrics": row},
            )
