"""The end of a run: a last evaluation on episodes nothing has seen, report.md and its picture, the panel in the terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gymlab.engine.callbacks.alerts import read_alerts
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.callbacks.video import FINAL_VIDEO
from gymlab.engine.evaluation import evaluate
from gymlab.engine.files import write_text
from gymlab.metrics.csv_file import read_metrics
from gymlab.metrics.plots import learning_curve
from gymlab.metrics.report import ReportData, render_report
from gymlab.metrics.statistics import Interval

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator
    from gymlab.engine.run import Run


class Report(Callback):
    """Comes last: everything else about the run is on disk when it looks."""

    def __init__(self, run: Run, threshold: float | None) -> None:
        self.run = run
        self.threshold = threshold

    def on_stop(self, loop: Orchestrator) -> None:
        """Evaluate the final agent on the test stream and tell how the run went."""
        result = None if loop.stop_signal.requested else self._test(loop)
        self.run.update_record(
            counters={name: getattr(loop.counters, name) for name in ("env_steps", "updates", "episodes", "epoch")},
            seconds=loop.training_seconds,
            result=result,
        )
        if loop.session.restarts.count:
            loop.monitor.notice(loop.session.restarts.summary())
        loop.monitor.flush()
        rows = read_metrics(self.run.dir / "metrics.csv")
        curve = learning_curve(
            rows, self.run.dir / "curve.png", threshold=self.threshold, title=self.run.record["experiment"]
        )
        summary = replace(self._summary(loop, result, curve is not None), pictures=self._draw(loop))
        write_text(self.run.dir / "report.md", render_report(summary))
        loop.monitor.report(_seen_from_here(summary))

    def _test(self, loop: Orchestrator) -> dict[str, Any] | None:
        """Return of the final agent on episodes that no choice during training has seen."""
        with loop.session.make_evaluation_environment("test", loop.config.eval_episodes) as environment:
            found = evaluate(
                loop.workflow,
                environment,
                loop.config.eval_episodes,
                deterministic=loop.config.eval_deterministic,
                seeds=loop.session.seeds,
                time_limit=loop.config.eval_time_limit,
                should_stop=lambda: loop.stop_signal.requested,
            )
        if not found.n:
            return None
        summary = found.summary()
        return {
            **summary,
            "threshold": self.threshold,
            "solved": None if self.threshold is None else summary["mean"] >= self.threshold,
        }

    def _draw(self, loop: Orchestrator) -> dict[str, str]:
        """Draw what the workflow has to show; titles and paths from the run's directory."""
        drawn = {}
        for title, draw in loop.workflow.pictures().items():
            path = self.run.dir / "pictures" / f"{title.lower().replace(' ', '-')}.png"
            path.parent.mkdir(exist_ok=True)
            draw(path)
            drawn[title] = f"pictures/{path.name}"
        return drawn

    def _summary(self, loop: Orchestrator, result: dict[str, Any] | None, has_curve: bool) -> ReportData:
        record = self.run.record
        checkpoints = self.run.dir / "checkpoints"
        links = {
            name: f"checkpoints/{os.readlink(checkpoints / name)}"
            for name in ("best.ckpt", "last.ckpt")
            if (checkpoints / name).is_symlink()
        }
        video = f"videos/{FINAL_VIDEO}"
        return ReportData(
            experiment=record["experiment"],
            run_id=self.run.id,
            run_directory=str(self.run.dir),
            algorithm=loop.config.algo_id,
            environment=f"{loop.config.env_id}, {loop.config.n_envs} × {loop.session.environment.stepped_by}",
            seed=loop.config.seed,
            status=str(loop.stop_reason),
            result=None
            if result is None
            else Interval(result["mean"], result["ci95"][0], result["ci95"][1], result["n"]),
            env_steps=loop.counters.env_steps,
            updates=loop.counters.updates,
            episodes=loop.counters.episodes,
            wall_seconds=loop.training_seconds,
            command=record["command"],
            threshold=self.threshold,
            deterministic=loop.config.eval_deterministic,
            best_checkpoint=links.get("best.ckpt"),
            last_checkpoint=links.get("last.ckpt"),
            video=video if (self.run.dir / video).exists() else None,
            curve="curve.png" if has_curve else None,
            report="report.md",
            commit=record["versions"].get("commit"),
            versions=record["versions"],
            notices=tuple(loop.monitor.notices),
            alerts=read_alerts(self.run.dir),
        )


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
