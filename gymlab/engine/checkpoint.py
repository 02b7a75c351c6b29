"""Checkpoints: directories of safetensors and JSON that are whole or absent."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gymlab.engine.chunk_store import store_of
from gymlab.engine.files import relative_link, sha256, sync, write_json
from gymlab.engine.lock import refuse_if_gone
from gymlab.engine.manifest import (
    MANIFEST,
    MODEL,
    STATE,
    Manifest,
    damaged,
    finished_checkpoints,
    name_and_place,
    read_manifest,
    read_named_fields,
)
from gymlab.engine.state import decode, encode
from gymlab.engine.workflow import Counters
from gymlab.errors import CheckpointError

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
LEAVING = ".leaving-"
"""Prefix of a checkpoint that is being deleted: it is half there at most."""
MOST_ATTEMPTS = 100
"""How often a checkpoint is looked for anew because a training has changed the directory meanwhile."""
NUMBER = (int, float)
STATE_FIELDS: dict[str, tuple[type, ...]] = {
    "parts": (dict,),
    "counters": (dict,),
    "phase": (dict,),
    "hyperparameters": (dict,),
    "statistics": (dict,),
    "callbacks": (dict,),
    "pending_metrics": (dict,),
    "observation_space": (dict,),
    "raw_observation_space": (dict,),
    "action_space": (dict,),
    "best_score": (*NUMBER, type(None)),
    "seconds": NUMBER,
    "cpu_seconds": NUMBER,
    "epoch_began": (int, type(None)),
    "epoch_ending": (bool,),
    "cut": (dict, type(None)),
}
"""What state.json has, and of which type."""

FIXES: dict[int | None, str] = {
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
    errno.ENOENT: "See to it that nothing deletes files of a run that trains",
}
"""What to do against an error of the disk, by its number."""

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk; `CheckpointManager.find` has verified the one that it gives."""

    path: Path

    @property
    def name(self) -> str:
        """What it is called, also where a kill has left it under the name that it was written under."""
        return name_and_place(self.path)[0]

    @property
    def place(self) -> tuple[int, int]:
        """Epochs that had ended when it was written and, for a stop in the middle of one, env steps: the order of checkpoints."""
        return name_and_place(self.path)[1]

    @property
    def manifest(self) -> Manifest:
        """Its files and the chunk files that it refers to, with sizes and checksums."""
        return read_manifest(self.path)

    @property
    def written(self) -> float:
        """When it was finished, in seconds since 1970."""
        try:
            return (self.path / MANIFEST).stat().st_mtime
        except OSError as error:
            raise CheckpointError(f"{self.path / MANIFEST} cannot be read: {error.strerror}.") from error

    @property
    def chunks(self) -> Mapping[str, Mapping[str, Any]]:
        """Size and checksum by name of the chunk files of the run that the buffers' state refers to."""
        return self.manifest.chunks

    def read_state(self, *needed: str) -> dict[str, Any]:
        """Format version, workflow, counters, phase and the JSON part of everything saved; one that is `needed` must be there."""
        path = self._listed(STATE)
        state = read_named_fields(path)
        version = state.get("format_version", 0)
        if type(version) is not int:
            raise damaged(path, f"format_version is {str(version)[:40]!r}")
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"{self.path} was written by a newer gymlab (format {version}); update gymlab to open it."
            )
        for name, types in STATE_FIELDS.items():
            if name in state and type(state[name]) not in types:
                raise damaged(path, f"{name} is a {type(state[name]).__name__}")
        for name in ("parts", *needed):
            if name not in state:
                raise damaged(path, f"it has no {name}")
        return state

    def read_counters(self) -> Counters:
        """How far the run was."""
        saved, known = self.read_state("counters")["counters"], {field.name for field in fields(Counters)}
        for name in known | saved.keys():
            # None counts to more than this: a larger number is no count, and would be none that a tensor or a table holds.
            if name not in known or type(saved.get(name)) is not int or not 0 <= saved[name] < 2**63:
                raise damaged(self.path / STATE, f"{name[:40]!r} of its counters is {str(saved.get(name))[:40]}")
        return Counters(**saved)

    def read_model(self) -> dict[str, Tensor]:
        """Parameters and buffers by `module.parameter`."""
        return _read_tensors(self._listed(MODEL))

    def read_part(self, name: str) -> Any:
        """A part of the state (`optimizer`, `rng`, `envs`, `buffers`, `workflow`) as it was given to `save`; None if it was not saved."""
        tree = self.read_state()["parts"].get(name)
        file = f"{name}.safetensors"
        tensors = _read_tensors(self.path / file) if file in self.manifest.files else {}
        with understood(f"The part {name!r} of {self.path}"):
            return decode(tree, tensors)

    @property
    def video(self) -> Path | None:
        """Video of the agent at this checkpoint, when one was recorded."""
        return self.path / "video.mp4" if "video.mp4" in self.manifest.files else None

    def metrics(self) -> dict[str, float]:
        """The metrics row that the checkpoint was written with."""
        return read_named_fields(self._listed("metrics.json"))

    def _listed(self, name: str) -> Path:
        """A file that the manifest has a checksum of; any other may be anything."""
        if name not in self.manifest.files:
            raise damaged(self.path, f"{MANIFEST} does not list {name}")
        return self.path / name

    def verify(self, *, resumable: bool = True) -> None:
        """Compare each file with the manifest; a missing or changed one is an error that names it.

        Chunk files of a replay are looked at for their size. Without `resumable` they are not: an agent can act without them.
        """
        try:
            self.manifest.verify(self.path)
        except OSError as error:
            raise CheckpointError(f"{error.filename or self.path} cannot be read: {error.strerror}.") from error
        if resumable:
            self._verify_chunks(contents=False)

    def verify_chunks(self) -> None:
        """Compare the content of the chunk files that the replay needs with their checksums."""
        self._verify_chunks(contents=True)

    def _verify_chunks(self, *, contents: bool) -> None:
        try:
            store_of(self.path.parent).verify(self.chunks, contents=contents)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path} cannot be gone on from: {error}") from error


class CheckpointManager:
    """Writes, links, finds and prunes the checkpoints of one run."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self.directory = directory
        self.keep = keep
        self.chunk_store = store_of(directory)
        """Files of buffers that checkpoints refer to."""

    def save(
        self,
        *,
        epoch: int,
        env_steps: int,
        mid_epoch: bool,
        model: Mapping[str, Tensor],
        parts: Mapping[str, Any],
        state: Mapping[str, Any],
        metrics: Mapping[str, float],
        best: bool,
        video: Path | None = None,
        chunks: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Checkpoint:
        """Write a checkpoint under a temporary name, rename it when whole, move the links, prune what is no longer kept."""
        name = f"epoch={epoch:04d}-step={env_steps}.ckpt" if mid_epoch else f"epoch={epoch:04d}.ckpt"
        temporary = self.directory / f".tmp-{os.getpid()}-{name}"
        refuse_if_gone(self.directory.parent)
        self.recover()
        _delete(temporary)
        try:
            self.directory.mkdir(exist_ok=True)
            temporary.mkdir()
            if chunks:
                self.chunk_store.settle()
            self._write(temporary, model, parts, {**state, "best": best}, metrics, video, chunks or {})
            self._put_in_place(temporary, self.directory / name)
        except (OSError, SafetensorError) as error:
            _delete(temporary)
            raise CheckpointError(
                f"Could not write checkpoint {name} in {self.directory}: {error}. {self.way_on(error)}"
            ) from error
        sync(self.directory)
        relative_link(self.directory / "last.ckpt", name)
        if best:
            relative_link(self.directory / "best.ckpt", name)
        self._prune()
        return Checkpoint(self.directory / name)

    def _write(
        self,
        directory: Path,
        model: Mapping[str, Tensor],
        parts: Mapping[str, Any],
        state: Mapping[str, Any],
        metrics: Mapping[str, float],
        video: Path | None,
        chunks: Mapping[str, Mapping[str, Any]],
    ) -> None:
        save_file({key: tensor.detach().cpu().contiguous().clone() for key, tensor in model.items()}, directory / MODEL)
        trees = {}
        for part, value in parts.items():
            tensors: dict[str, Tensor] = {}
            trees[part] = encode(value, part, tensors)
            if tensors:
                save_file(tensors, directory / f"{part}.safetensors")
        write_json(directory / STATE, {"format_version": FORMAT_VERSION, **state, "parts": trees})
        write_json(directory / "metrics.json", {key: encode(value, key, {}) for key, value in metrics.items()})
        if video is not None:
            shutil.copyfile(video, directory / "video.mp4")
        files = {}
        for file in sorted(directory.iterdir()):
            sync(file)
            files[file.name] = {"size": file.stat().st_size, "sha256": sha256(file)}
        write_json(directory / MANIFEST, {"files": files, **({"chunks": chunks} if chunks else {})})
        sync(directory)

    def _put_in_place(self, temporary: Path, final: Path) -> None:
        """Rename a whole checkpoint to its name. An older one of that name steps aside first: at any instant one of the two is whole."""
        if not os.path.lexists(final):
            os.rename(temporary, final)
            return
        aside = self.directory / f".old-{os.getpid()}-{final.name}"
        _delete(aside)
        os.rename(final, aside)
        try:
            os.rename(temporary, final)
        except OSError:
            os.rename(aside, final)
            raise

    def all(self) -> list[Checkpoint]:
        """Finished checkpoints, oldest first; their content is not verified. What a kill has left whole is among them."""
        return [Checkpoint(path) for path in finished_checkpoints(self.directory)]

    def way_on(self, error: Exception) -> str:
        """What a run still has that an error of the disk keeps from being written, and how to go on."""
        fix = FIXES.get(getattr(error, "errno", None), "Make room or allow writing")
        for checkpoint in reversed(self.all()):
            with suppress(CheckpointError):
                checkpoint.verify()
                return (
                    f"Checkpoint {checkpoint.name} is whole. {fix}, then go on: "
                    f"gymlab train --resume {self.directory.parent.name}"
                )
        return f"It has no checkpoint to go on from. {fix}, then train again."

    def recover(self) -> None:
        """Give whole checkpoints that a kill has left under another name their own; only for who holds the run's lock."""
        for checkpoint in reversed(self.all()):
            final = self.directory / checkpoint.name
            if checkpoint.path == final or (final / MANIFEST).is_file():
                continue
            try:
                checkpoint.verify()
            except CheckpointError as error:
                logger.warning("%s", error)
                continue
            if os.path.lexists(final):
                self._remove(final)
            os.rename(checkpoint.path, final)
            sync(self.directory)
            logger.warning("%s was written when the run was killed; it is whole and taken up.", checkpoint.name)

    def _linked(self, link: str) -> str | None:
        path = self.directory / link
        return os.readlink(path) if path.is_symlink() else None

    def _prune(self) -> None:
        checkpoints = self.all()
        kept = {self._linked("best.ckpt"), self._linked("last.ckpt"), *(c.name for c in checkpoints[-self.keep :])}
        for checkpoint in checkpoints:
            if checkpoint.name not in kept:
                self._remove(checkpoint.path)
        for pattern in (".tmp-*", ".old-*", f"{LEAVING}*", ".*.ckpt.*.tmp"):
            for leftover in self.directory.glob(pattern):
                _delete(leftover)
        self._collect_chunks()

    def _remove(self, path: Path) -> None:
        """Delete a checkpoint, its name first: a kill in the middle leaves nothing that looks like one."""
        if path.is_symlink():
            path.unlink()
            return
        leaving = self.directory / f"{LEAVING}{os.getpid()}-{path.name}"
        _delete(leaving)
        os.rename(path, leaving)
        with suppress(FileNotFoundError):  # Somebody deletes the run.
            shutil.rmtree(leaving)

    def _collect_chunks(self) -> None:
        """Delete chunk files that no checkpoint refers to; none while a manifest cannot be read, as it may refer to any."""
        try:
            self.chunk_store.collect({name for checkpoint in self.all() for name in checkpoint.chunks})
        except CheckpointError as error:
            logger.warning("%s Chunk files that are no longer needed stay.", error)

    def spare(self) -> list[Checkpoint]:
        """Checkpoints that are neither the best, the last nor the newest; links to elsewhere are none of ours."""
        if self.directory.is_symlink():
            return []
        checkpoints = self.all()
        kept = {self._linked("best.ckpt"), self._linked("last.ckpt"), *(c.name for c in checkpoints[-1:])}
        return [c for c in checkpoints if c.name not in kept and not c.path.is_symlink()]

    def thin(self) -> None:
        """Delete the spare checkpoints, once the kept ones are known to be whole; an error, and nothing deleted, if not."""
        self.recover()
        spare = self.spare()
        for checkpoint in self.all():
            if checkpoint not in spare:
                checkpoint.verify()
        for checkpoint in spare:
            self._remove(checkpoint.path)
        self._collect_chunks()

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Make `checkpoint` the newest: what came after it belongs to a future that is given up."""
        for other in self.all():
            if other.place > checkpoint.place:
                self._remove(other.path)
        relative_link(self.directory / "last.ckpt", checkpoint.name)
        # A kill may have come between the checkpoint and the link.
        if checkpoint.read_state().get("best") is True:
            relative_link(self.directory / "best.ckpt", checkpoint.name)
        elif not (self.directory / "best.ckpt").exists():
            (self.directory / "best.ckpt").unlink(missing_ok=True)
        self._collect_chunks()

    @property
    def best(self) -> str | None:
        """Name of the best checkpoint; None for a run that has none."""
        for _ in range(MOST_ATTEMPTS):
            best = self._linked("best.ckpt")
            if best is None or any(checkpoint.name == best for checkpoint in self.all()):
                return best
            # A training may have moved the link to a better one and deleted this one.
            if self._linked("best.ckpt") == best:
                break
        return None

    def find(self, which: str = "@last", *, resumable: bool = False) -> Checkpoint:
        """`@last` (newest that verifies), `@best`, `epoch=13` or `13`; always verified, with `resumable` down to the content of its replay."""
        return self.read(which, lambda checkpoint: checkpoint, resumable=resumable)

    def read(self, which: str, take: Callable[[Checkpoint], T], *, resumable: bool = False) -> T:
        """What `take` reads from the checkpoint that `find` means.

        A training deletes and rewrites checkpoints while others read them: what changed on the way is no damage, it is looked for anew.
        """
        for _ in range(MOST_ATTEMPTS - 1):
            seen = self._seen()
            try:
                return self._read(which, take, resumable)
            except (CheckpointError, OSError):
                if self._seen() == seen:
                    raise
        return self._read(which, take, resumable)

    def _read(self, which: str, take: Callable[[Checkpoint], T], resumable: bool) -> T:
        damage = []
        for checkpoint in self._meant(which):
            identity = _identity(checkpoint.path)
            try:
                _verify(checkpoint, resumable)
                found = take(checkpoint)
            except CheckpointError as error:
                if which != "@last" or _identity(checkpoint.path) != identity:
                    raise
                logger.warning("%s", error)
                damage.append(str(error))
                continue
            if _identity(checkpoint.path) != identity:
                raise CheckpointError(f"{checkpoint.path} was replaced while it was read. Try again.")
            return found
        raise CheckpointError("No checkpoint of the run is whole:\n" + "\n".join(damage))

    def _meant(self, which: str) -> list[Checkpoint]:
        """The checkpoints that a word may mean, the first choice first."""
        # The link is moved before what it pointed at is deleted: read first, its target is among those that are there.
        best, checkpoints = self._linked("best.ckpt"), self.all()[::-1]
        if not checkpoints:
            raise CheckpointError(f"{self.directory} holds no finished checkpoint.")
        if which == "@last":
            return checkpoints
        if which == "@best":
            meant = [c for c in checkpoints if c.name == best]
        else:
            name = which.removesuffix(".ckpt").removeprefix("epoch=")
            meant = [c for c in checkpoints if c.name == f"epoch={name}.ckpt"]
            meant = meant or [c for c in checkpoints if str(c.place[0]) == (name.lstrip("0") or "0")]
        if not meant:
            names = [c.name.removesuffix(".ckpt") for c in reversed(checkpoints)]
            known = ", ".join([*(["@best"] if best in [c.name for c in checkpoints] else []), "@last", *names])
            why = " None is the best before an evaluation has said so." if which == "@best" else ""
            raise CheckpointError(f"No checkpoint {which!r} in {self.directory}.{why} There is: {known}.")
        return meant[:1]

    def _seen(self) -> dict[str, tuple[int, int] | None]:
        """What differs when anything in the directory was written, renamed or deleted."""
        with suppress(OSError):
            return {name: _identity(self.directory / name) for name in os.listdir(self.directory)}
        return {}


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Turn what goes wrong with the content of a saved state into an error that names it; its cause stays attached."""
    try:
        yield
    except CheckpointError as error:
        if what in str(error):
            raise
        raise CheckpointError(f"{what} cannot be used: {error} Use an earlier checkpoint of the run.") from error
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"{what} cannot be understood ({type(error).__name__}: {str(error)[:300]}). Use an earlier checkpoint of the run."
        ) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file or directory from another that took its name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _delete(path: Path) -> None:
    """Delete a directory, or a link without what it leads to; what cannot be deleted stays."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _verify(checkpoint: Checkpoint, resumable: bool) -> None:
    checkpoint.verify(resumable=resumable)
    if resumable:
        checkpoint.verify_chunks()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    # RuntimeError is torch's: it opens the file once more after its header was read, and a training may have deleted it by then.
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}).") from error
