"""Dreams of gymlab's Δ-IRIS with the transformer's keys and values kept, and without. Runs in worker processes."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import gymlab
from gymlab.bench.watch import watch
from gymlab.engine.setup import prepare

SEEN = 6
"""Real frames before a dream."""


@dataclass(frozen=True, slots=True)
class Read:
    """Tokens that were read, and nothing of what the transformer made of them."""

    tokens: Tensor
    """[B, T, W]."""
    most: int

    @property
    def room(self) -> int:
        """Tokens that can still be read."""
        return self.most - self.tokens.shape[1]


class Rereading(nn.Module):
    """A transformer that keeps no keys and values: for each token that is asked for it reads the whole sequence again."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer

    def empty(self, batch: int) -> Read:
        """Nothing read."""
        return Read(torch.empty(batch, 0, self.transformer.width), self.transformer.most_tokens)

    @torch.no_grad()
    def go_on(self, x: Tensor, read: Read) -> tuple[Tensor, Read]:
        """Outputs for these tokens, and the longer sequence."""
        tokens = torch.cat([read.tokens, x], dim=1)
        return self.transformer(tokens)[:, -x.shape[1] :], Read(tokens, read.most)


def time_dreams(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of dreams in both ways, turn by turn, and without what both spend alike on frames."""
    fields = {
        # So many that the places are not used up, at which both would begin anew.
        "blocks": SEEN + job["steps"],
        "burn_in": SEEN - 1,
        "size": job["size"],
        "torch_threads": job["threads"],
        "precision": job["precision"],
        "seed": job["seed"],
        "n_envs": 1,
        "replay_size": 100,
        "replay_on_disk": False,
    }
    session = prepare(gymlab.resolve(job["experiment"], **{**fields, **job["options"]}).config)
    workflow: Any = session.workflow
    inside = watch([(workflow.tokenizer, "next_frame"), (workflow.model, "frame_tokens")])
    kept = workflow.model.transformer
    turns: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    for _ in range(1 + job["repeats"]):
        for way, transformer in (("with", kept), ("without", Rereading(kept))):
            workflow.model.transformer = transformer
            dream = begin(workflow, job)
            inside.clear()
            began = time.perf_counter()
            dream_on(workflow, dream, job)
            seconds = time.perf_counter() - began
            turns[way].append((seconds, seconds - sum(inside.values())))
    session.close()
    found: dict[str, Any] = {}
    for place, what in enumerate(("whole", "words")):
        spent = {way: [turn[place] for turn in timed[1:]] for way, timed in turns.items()}
        found |= {f"{what}/{way}": statistics.median(seconds) for way, seconds in spent.items()}
        found[f"{what}/ratio"] = statistics.median(
            slow / fast for fast, slow in zip(spent["with"], spent["without"], strict=True)
        )
    return found


def begin(workflow: Any, job: dict[str, Any]) -> Any:
    """Dreams behind random frames, actions and words."""
    generator = torch.Generator().manual_seed(job["seed"])
    model, rows = workflow.model, job["dreams"]
    frames = torch.rand(rows, SEEN, *workflow.parts.shapes[workflow.key], generator=generator)
    actions = torch.randint(workflow.actions.size, (rows, SEEN - 1), generator=generator)
    words = torch.randint(model.words.num_embeddings, (rows, SEEN - 1, model.tokens), generator=generator)
    return model.begin(frames, actions, words)


def dream_on(workflow: Any, dream: Any, job: dict[str, Any]) -> list[Tensor]:
    """The words [B, K] of every step, under random actions; the same in both ways."""
    torch.manual_seed(job["seed"])
    words = []
    for _ in range(job["steps"]):
        action = torch.randint(workflow.actions.size, (job["dreams"],))
        outcome = workflow.model.step(dream, action, workflow.tokenizer, workflow.dreams.noise(job["dreams"]))
        dream = outcome.dream
        words.append(outcome.tokens)
    return words
