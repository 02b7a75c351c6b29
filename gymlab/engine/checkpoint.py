"""Checkpoints: directories of safetensors and JSON that are whole or absent."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gymlab.engine.chunk_store import store_of
from gymlab.engine.files import read_json, relative_link, sha256, sync, write_json
from gymlab.engine.state import decode, encode
from gymlab.errors import CheckpointError

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
NAME = re.compile(r"^epoch=(\d+)(?:-step=(\d+))?\.ckpt$")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    path: Path

    @property
    def place(self) -> tuple[int, int]:
        """Epochs that had ended when it was written and, for a stop in the middle of one, env steps: the order of checkpoints."""
        match = NAME.match(self.path.name)
        assert match is not None, self.path
        return int(match[1]), int(match[2] or 0)

    def read_state(self) -> dict[str, Any]:
        """Format version, workflow, counters, phase and the JSON part of everything saved."""
        state = read_json(self.path / "state.json")
        if state.get("format_version", 0) > FORMAT_VERSION:
            raise CheckpointError(
                f"{self.path} was written by a newer gymlab (format {state['format_version']}); update gymlab to open it."
            )
        return state

    def read_model(self) -> dict[str, Tensor]:
        """Parameters and buffers by `module.parameter`."""
        return _read_tensors(self.path / "model.safetensors")

    def read_part(self, name: str) -> Any:
        """A part of the state (`optimizer`, `rng`, `envs`, `buffers`, `workflow`) as it was given to `save`; None if it was not saved."""
        tree = self.read_state()["parts"].get(name)
        file = self.path / f"{name}.safetensors"
        return decode(tree, _read_tensors(file) if file.exists() else {})

    @property
    def video(self) -> Path | None:
        """Video of the agent at this checkpoint, when one was recorded."""
        path = self.path / "video.mp4"
        return path if path.exists() else None

    def metrics(self) -> dict[str, float]:
        """The metrics row that the checkpoint was written with."""
        return read_json(self.path / "metrics.json")

    @property
    def chunks(self) -> dict[str, dict[str, Any]]:
        """Size and checksum by name of the chunk files of the run that the buffers' state refers to."""
        return read_json(self.path / "manifest.json").get("chunks", {})

    def verify(self, *, resumable: bool = True) -> None:
        """Compare each file with the manifest; a missing or changed one is an error that names it.

        Chunk files of a replay are looked at for their size. Without `resumable` they are not: an agent can act without them.
        """
        manifest_path = self.path / "manifest.json"
        if not manifest_path.is_file():
            raise CheckpointError(
                f"{self.path} has no manifest.json: it was never finished. Use an earlier checkpoint of the run."
            )
        for name, entry in read_json(manifest_path)["files"].items():
            file = self.path / name
            if Path(name).name != name or not file.is_file():
                raise CheckpointError(
                    f"{self.path} is damaged: {name} is missing. Use an earlier checkpoint of the run."
                )
            if file.stat().st_size != entry["size"] or sha256(file) != entry["sha256"]:
                raise CheckpointError(
                    f"{self.path} is damaged: {name} does not match its checksum. Use an earlier checkpoint of the run."
                )
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
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            if chunks:
                self.chunk_store.settle()
            self._write(temporary, model, parts, state, metrics, video, chunks or {})
            final = self.directory / name
            if final.exists():
                shutil.rmtree(final)
            os.replace(temporary, final)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(
                f"Could not write checkpoint {name} in {self.directory}: {error}. Earlier checkpoints are untouched: "
                f"make room or allow writing, then go on with gymlab train --resume {self.directory.parent.name}"
            ) from error
        sync(self.directory)
        relative_link(self.directory / "last.ckpt", name)
        if best:
            relative_link(self.directory / "best.ckpt", name)
        self._prune()
        return Checkpoint(final)

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
        save_file(
            {key: tensor.detach().cpu().contiguous().clone() for key, tensor in model.items()},
            directory / "model.safetensors",
        )
        trees = {}
        for part, value in parts.items():
            tensors: dict[str, Tensor] = {}
            trees[part] = encode(value, part, tensors)
            if tensors:
                save_file(tensors, directory / f"{part}.safetensors")
        write_json(directory / "state.json", {"format_version": FORMAT_VERSION, **state, "parts": trees})
        write_json(directory / "metrics.json", {key: encode(value, key, {}) for key, value in metrics.items()})
        if video is not None:
            shutil.copyfile(video, directory / "video.mp4")
        files = {}
        for file in sorted(directory.iterdir()):
            sync(file)
            files[file.name] = {"size": file.stat().st_size, "sha256": sha256(file)}
        write_json(directory / "manifest.json", {"files": files, **({"chunks": chunks} if chunks else {})})
        sync(directory)

    def all(self) -> list[Checkpoint]:
        """Finished checkpoints, oldest first; their content is not verified."""
        if not self.directory.is_dir():
            return []
        finished = [
            path for path in self.directory.iterdir() if NAME.match(path.name) and (path / "manifest.json").is_file()
        ]
        return sorted((Checkpoint(path) for path in finished), key=lambda checkpoint: checkpoint.place)

    def _linked(self, link: str) -> str | None:
        path = self.directory / link
        return os.readlink(path) if path.is_symlink() else None

    def _prune(self) -> None:
        checkpoints = self.all()
        kept = {self._linked("best.ckpt"), self._linked("last.ckpt"), *(c.path.name for c in checkpoints[-self.keep :])}
        for checkpoint in checkpoints:
            if checkpoint.path.name not in kept:
                shutil.rmtree(checkpoint.path)
        for leftover in self.directory.glob(".tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._collect_chunks()

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
        kept = {self._linked("best.ckpt"), self._linked("last.ckpt"), *(c.path.name for c in checkpoints[-1:])}
        return [c for c in checkpoints if c.path.name not in kept and not c.path.is_symlink()]

    def thin(self) -> None:
        """Delete the spare checkpoints, once the kept ones are known to be whole; an error, and nothing deleted, if not."""
        spare = self.spare()
        for checkpoint in self.all():
            if checkpoint not in spare:
                checkpoint.verify()
        for checkpoint in spare:
            # A kill in the middle leaves a name that is no checkpoint's, and that the next save cleans up.
            leaving = self.directory / f".tmp-{os.getpid()}-{checkpoint.path.name}"
            os.replace(checkpoint.path, leaving)
            shutil.rmtree(leaving)
        self._collect_chunks()

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Make `checkpoint` the newest: what came after it belongs to a future that is given up."""
        for other in self.all():
            if other.place > checkpoint.place:
                shutil.rmtree(other.path)
        relative_link(self.directory / "last.ckpt", checkpoint.path.name)
        if not (self.directory / "best.ckpt").exists():
            relative_link(self.directory / "best.ckpt", checkpoint.path.name)
        self._collect_chunks()

    def find(self, which: str = "@last", *, resumable: bool = False) -> Checkpoint:
        """`@last` (newest that verifies), `@best`, `epoch=13` or `13`; always verified, with `resumable` down to the content of its replay."""
        checkpoints = self.all()
        if not checkpoints:
            raise CheckpointError(f"{self.directory} holds no finished checkpoint.")
        if which == "@last":
            return self._newest_valid(checkpoints, resumable)
        if which == "@best":
            target = self._linked("best.ckpt")
            chosen = [c for c in checkpoints if c.path.name == target]
        else:
            epoch = which.removesuffix(".ckpt").removeprefix("epoch=")
            chosen = [c for c in checkpoints if epoch.isdigit() and c.place[0] == int(epoch)]
        if not chosen:
            known = ", ".join(["@best", "@last", *(c.path.name.removesuffix(".ckpt") for c in checkpoints)])
            raise CheckpointError(f"No checkpoint {which!r} in {self.directory}. There is: {known}.")
        _verify(chosen[-1], resumable)
        return chosen[-1]

    def _newest_valid(self, checkpoints: list[Checkpoint], resumable: bool) -> Checkpoint:
        damage = []
        for checkpoint in reversed(checkpoints):
            try:
                _verify(checkpoint, resumable)
                return checkpoint
            except CheckpointError as error:
                logger.warning("%s", error)
                damage.append(str(error))
        raise CheckpointError("No checkpoint of the run is whole:\n" + "\n".join(damage))


def _verify(checkpoint: Checkpoint, resumable: bool) -> None:
    checkpoint.verify(resumable=resumable)
    if resumable:
        checkpoint.verify_chunks()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}).") from error
