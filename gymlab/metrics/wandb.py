"""Weights & Biases: metrics over env steps and videos, online or offline (extra `wandb`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymlab.errors import GymlabError
from gymlab.metrics.monitor import Sink
from gymlab.metrics.names import ENV_STEPS
from gymlab.metrics.redact import redact


def project_name(project_id: str) -> str:
    """A project id as a W&B project: its names may not hold any of / \\ # ? % :, nor more than 128 characters."""
    return re.sub(r"[/\\#?%:\s]+", "-", project_id).strip("-")[:128] or "gymlab"


class WandbSink(Sink):
    """A W&B run under the run's own id, so that a resumed run goes on in the same curves.

    The config is sent redacted; code, git remotes, the command line and the environment are not sent.
    """

    def __init__(self, directory: str | Path, *, project: str, run_id: str, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise GymlabError(
                f'Weights & Biases is not installed ({error}). Install it with: pip install "gymlab[wandb]", '
                "or set enable_wandb=false."
            ) from error
        self._wandb = wandb
        settings = wandb.Settings(
            save_code=False,
            disable_code=True,
            disable_git=True,
            console="off",
            silent=True,
            x_disable_meta=True,
            x_save_requirements=False,
        )
        identity = project_name(run_id)
        try:
            self._run = wandb.init(
                project=project_name(project),
                id=identity,
                name=identity,
                dir=str(directory),
                config=redact(dict(config)),
                resume="allow",
                reinit="create_new",
                settings=settings,
            )
        except wandb.errors.Error as error:
            raise GymlabError(
                f"Weights & Biases did not start: {error}. Log in with `wandb login`, or train with WANDB_MODE=offline "
                "(upload later with `wandb sync`), or set enable_wandb=false."
            ) from error
        self._run.define_metric("*", step_metric=ENV_STEPS)

    @property
    def where(self) -> str:
        """Where the run can be seen, or how an offline one is uploaded."""
        if self._run.offline:
            return f"W&B is offline; upload with: wandb sync {Path(self._run.dir).parent}"
        return f"W&B run: {self._run.url}"

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Send an epoch's metrics; the env steps are among them and are the x-axis."""
        self._run.log(dict(row))

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Send the video file as it is."""
        self._run.log({name: self._wandb.Video(str(path), format="mp4"), ENV_STEPS: env_steps})

    def close(self) -> None:
        """Wait for the uploads and end the W&B run."""
        self._run.finish()
