"""The end of a run: a last evaluation on episodes nothing has seen, report.md and its picture, the panel in the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gymlab.engine.agent import REPORTED
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.lock import refuse_if_gone
from gymlab.engine.report import PICTURES, repeat_command, write_report
from gymlab.engine.run import wall_seconds
from gymlab.errors import GymlabError
from gymlab.metrics.report import ReportData
from gymlab.plain_files import replacing

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator
    from gymlab.engine.run import Run


WAITED_FOR = ("n_steps", "prefill_steps", "seed_steps", "collect_env_steps")
"""Settings that say how many env steps come before the first update."""


class Report(Callback):
    """Comes last: everything else about the run is on disk when it looks."""

    def __init__(self, run: Run, threshold: float | None) -> None:
        self.run = run
        self.threshold = threshold

    def on_stop(self, loop: Orchestrator) -> None:
        """Evaluate the final agent on the test stream and tell how the run went."""
        result = None if loop.stop_signal.requested else self._test(loop)
        loop.note_late_signal()
        if loop.session.restarts.count:
            loop.monitor.notice(loop.session.restarts.summary())
        if not loop.counters.updates:
            loop.monitor.notice(_no_update(loop))
        loop.monitor.flush()
        self.run.update_record(
            counters={name: getattr(loop.counters, name) for name in ("env_steps", "updates", "episodes", "epoch")},
            seconds=loop.training_seconds,
            restarts=loop.session.restarts.count,
            result=result,
            threshold=self.threshold,
            notices=list(loop.monitor.notices),
            pictures=self._draw(loop),
            wall_seconds=wall_seconds(self.run),
        )
        try:
            written = write_report(self.run, str(loop.stop_reason))
        except GymlabError as error:
            refuse_if_gone(self.run.dir)
            # What the run has learned is saved: it has come to its end.
            loop.monitor.notice(f"No report: {error}")
            return
        loop.monitor.report(replace(_seen_from_here(written), command=repeat_command(self.run, from_here=True)))

    def _test(self, loop: Orchestrator) -> dict[str, Any] | None:
        """Return of the final agent on episodes that no choice during training has seen; `gymlab eval --stream test` repeats them."""
        loop.monitor.set_phase("test")
        loop.workflow.seed_acting(loop.session.seeds.child(REPORTED))
        with loop.session.make_evaluation_environment(REPORTED, loop.config.eval_episodes) as environment:
            found = loop.play(environment, "test")
        loop.monitor.set_phase("")
        if not found.n and loop.stop_signal.requested:
            return None
        return found.judged(loop.config, self.threshold)

    def _draw(self, loop: Orchestrator) -> dict[str, str]:
        """Draw what the workflow has to show; titles and paths from the run's directory."""
        drawn = {}
        for title, draw in loop.workflow.pictures().items():
            path = self.run.dir / PICTURES / f"{title.lower().replace(' ', '-')}.png"
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as temporary:
                draw(temporary)
            drawn[title] = f"{PICTURES}/{path.name}"
        return drawn


def _no_update(loop: Orchestrator) -> str:
    """What a run says that ended before its agent learned anything."""
    what = f"0 updates in {loop.counters.env_steps:,} env steps: the agent is the one that the run began with."
    if loop.stopped:
        return f"{what} The run was stopped before its first update."
    waits = [name for name in WAITED_FOR if getattr(loop.config, name, None)]
    lower = "".join(f", or lower {name} ({getattr(loop.config, name):,})" for name in waits)
    return f"{what} Raise max_env_steps{lower}."


def _seen_from_here(summary: ReportData) -> ReportData:
    """The same with paths from the current directory, to click on in a terminal."""

    def seen(path: str | None) -> str | None:
        return None if path is None else f"{summary.run_directory}/{path}"

    return replace(
        summary,
        best_checkpoint=seen(summary.best_checkpoint),
        last_checkpoint=seen(summary.last_checkpoint),
        video=seen(summary.video),
        report=seen(summary.report),
    )
