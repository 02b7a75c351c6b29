"""What a training that cannot go on leaves behind: the data in which a NaN was found, and words for a disk that takes no more."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from gymlab.engine.files import write_json
from gymlab.engine.lock import refuse_if_gone
from gymlab.engine.state import encode
from gymlab.errors import GymlabError, NonFiniteError, RunGone
from gymlab.metrics.redact import redact_text
from gymlab.plain_files import replacing

if TYPE_CHECKING:
    from gymlab.engine.run import Run
    from gymlab.engine.workflow import Counters

EVIDENCE = "non_finite"
"""Directory of a run that holds what a NaN or Inf was found in: `batch.safetensors` and `where.json`."""
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
FILE_ERRORS = {errno.EACCES, errno.EPERM, errno.ENOENT}
"""What says that the run cannot be written where it is about a file of the run's."""


def write_evidence(error: NonFiniteError, run: Run, counters: Counters) -> None:
    """Write the data that the error carries into the run, and say in the error where it is."""
    directory = run.dir / EVIDENCE
    tensors: dict[str, Tensor] = {}
    try:
        refuse_if_gone(run.dir)
        directory.mkdir(exist_ok=True)
        tree = {name: encode(_plain(value), name, tensors) for name, value in error.data.items()}
        with replacing(directory / "batch.safetensors") as temporary:
            save_file(tensors, temporary)
        where = {"tensor": error.tensor, "message": redact_text(str(error)), "counters": asdict(counters), "data": tree}
        write_json(directory / "where.json", where)
    except (OSError, SafetensorError, RunGone) as failure:
        error.args = (f"{error}\nThe batch could not be written to {directory}: {failure}.",)
        return
    saved = "the last checkpoint is as it was" if run.checkpoints.all() else "it had written no checkpoint yet"
    place = directory / "batch.safetensors"
    error.args = (f"{error}\nStopped at {counters.env_steps:,} env steps. The batch is in {place}; {saved}.",)


def _plain(value: Any) -> Any:
    """Records, sequences and arrays as what a checkpoint can hold, secrets blanked in texts; anything else by its description."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {redact_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        return _plain(value.tolist())
    if value is None or isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray | Tensor):
        return value
    return redact_text(value if isinstance(value, str) else repr(value))


@contextmanager
def disk_watched(run: Run) -> Iterator[None]:
    """Turn a disk that is full or cannot be written into an error that says so, with the way on."""
    try:
        yield
    except OSError as error:
        ours = str(error.filename).startswith(str(run.dir))
        if error.errno not in DISK_ERRORS and not (ours and error.errno in FILE_ERRORS):
            raise
        place = error.filename if error.errno == errno.ENOENT else run.dir
        way_on = run.checkpoints.way_on(error)
        raise GymlabError(f"Run {run.id} stopped: cannot write to {place}: {error.strerror}. {way_on}") from error
