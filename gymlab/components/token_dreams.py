"""Episodes of an environment through the tokenizer and the transformer of Δ-IRIS: beside the truth, and step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gymlab.components.actors import ActionDistribution
from gymlab.components.delta_tokenizer import DeltaTokenizer
from gymlab.components.dreaming import HeldOut
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.token_world_model import TokenDream, TokenWorldModel


class TokenDreams:
    """Takes observations and actions as the environment has them, and gives what the model makes of them in the same units."""

    def __init__(
        self,
        tokenizer: DeltaTokenizer,
        model: TokenWorldModel,
        parts: ObservationParts,
        actions: ActionDistribution,
        burn_in: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.model = model
        self.parts = parts
        self.actions = actions
        self.burn_in = burn_in
        (self.key,) = parts.shapes

    @torch.no_grad()
    def words(self, frames: Tensor, actions: Tensor) -> Tensor:
        """What is new in all frames but the first: [B, T + 1, C, S, S], [B, T] -> [B, T, K]."""
        if not actions.shape[1]:
            return torch.zeros(*actions.shape, self.tokenizer.tokens, dtype=torch.int64, device=frames.device)
        before, after = (part.flatten(0, 1) for part in (frames[:, :-1], frames[:, 1:]))
        return self.tokenizer.encode(before, actions.flatten(), after).tokens.unflatten(0, actions.shape)

    def noise(self, count: int, generator: np.random.Generator | None = None) -> Tensor:
        """Gumbel's, for a step of `count` dreams: [count, K + 2, words]; from torch's own generator if none is given."""
        shape = (count, self.tokenizer.tokens + 2, self.model.words.num_embeddings)
        device = self.model.words.weight.device
        if generator is None:
            return torch.empty(shape, device=device).exponential_().log_().neg_()
        return torch.from_numpy(generator.gumbel(size=shape).astype(np.float32)).to(device)

    # One episode, as the environment has it

    def start(self, observations: np.ndarray, actions: np.ndarray) -> TokenDream:
        """A dream that has seen the last frames of one episode [T, ...], as many as in training."""
        seen = slice(-self.burn_in - 1, None)
        frames, taken = self._frames(observations[seen]), self._taken(actions[seen])[:, :-1]
        return self.model.begin(frames, taken, self.words(frames, taken))

    def step(
        self, dream: TokenDream, actions: np.ndarray, generator: np.random.Generator | None
    ) -> tuple[TokenDream, np.ndarray, np.ndarray, np.ndarray]:
        """One step of B dreams: where they are, observations [B, ...], rewards [B] and ends [B]."""
        # Going on writes behind what the cache has read: the dream that is left must not find that.
        dream = dataclasses.replace(dream, cache=dream.cache.copy())
        noise = None if generator is None else self.noise(len(actions), generator)
        outcome = self.model.step(dream, self._taken(actions)[0], self.tokenizer, noise)
        observation = self.parts.restored({self.key: _bytes(outcome.dream.frame)})
        return outcome.dream, observation, outcome.reward.float().cpu().numpy(), outcome.ended.cpu().numpy()

    def beside(self, observations: np.ndarray, actions: np.ndarray, seen: int) -> tuple[np.ndarray, np.ndarray]:
        """Reconstruction and dream [T - seen, ...] of one episode [T, ...], of which a dream sees the first `seen` steps."""
        first = max(0, seen - self.burn_in - 1)
        frames, taken = self._frames(observations[first:]), self._taken(actions[first:])
        shown = self._look_ahead(frames, taken, seen - first)
        reconstruction, dream = (self.parts.join({self.key: rows[0]}) for rows in shown)
        return reconstruction, dream

    # Sequences, as they were collected

    def hold_out(self, values: Mapping[str, np.ndarray]) -> HeldOut:
        """What the model makes of records [B, T, ...] that it has not learned from, of which dreams see the first."""
        seen = self.burn_in + 1
        begins = values["is_first"].copy()
        begins[:, 0] = False
        whole = ~np.logical_or.accumulate(begins, axis=1)[:, seen:]  # [B, T]
        shown = values[f"observation/{self.key}"]
        device = self.model.words.weight.device
        frames = torch.from_numpy(shown).to(device).float().div_(255)
        taken = torch.from_numpy(values["action"]).to(device).argmax(-1)
        reconstruction, dream = self._look_ahead(frames, taken, seen)
        truth, redrawn, dreamt = (
            {self.key: pictures.swapaxes(0, 1)} for pictures in (shown[:, seen:], reconstruction, dream)
        )
        return HeldOut(truth, redrawn, dreamt, whole.T)

    @torch.no_grad()
    def _look_ahead(self, frames: Tensor, actions: Tensor, seen: int) -> tuple[np.ndarray, np.ndarray]:
        """Reconstruction and dream [B, T - seen, C, S, S] in 0..255, with the likeliest words."""
        before, taken, after = frames[:, seen - 1 : -1], actions[:, seen - 1 : -1], frames[:, seen:]
        words = self.words(frames[:, seen - 1 :], taken).flatten(0, 1)
        redrawn = self.tokenizer.next_frame(before.flatten(0, 1), taken.flatten(), words).view(after.shape)
        known = actions[:, : seen - 1]
        dream = self.model.begin(frames[:, :seen], known, self.words(frames[:, :seen], known))
        dreamt = []
        for action in taken.unbind(1):
            dream = self.model.step(dream, action, self.tokenizer).dream
            dreamt.append(dream.frame)
        return _bytes(redrawn), _bytes(torch.stack(dreamt, dim=1))

    def _frames(self, observations: np.ndarray) -> Tensor:
        """[T, ...] -> [1, T, C, S, S] in 0..1."""
        shown = torch.from_numpy(self.parts.split(observations)[self.key])
        return shown.to(self.model.words.weight.device).float().div_(255).unsqueeze(0)

    def _taken(self, actions: np.ndarray) -> Tensor:
        """[T] -> [1, T] numbers of actions."""
        vectors = torch.from_numpy(self.actions.from_environment(actions))
        return vectors.to(self.model.words.weight.device).argmax(-1).unsqueeze(0)


def _bytes(frames: Tensor) -> np.ndarray:
    """0..1 -> 0..255."""
    pictures: np.ndarray = frames.mul(255).round_().to(torch.uint8).cpu().numpy()
    return pictures
