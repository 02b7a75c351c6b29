"""The world model of Δ-IRIS: a transformer that predicts the words of the next frame, the reward and whether the episode ends.

    block t    I(x[t])   a[t]   Δ1  Δ2  Δ3  Δ4        Δ of x[t+1], given x[t] and a[t]
    predicts              Δ1    Δ2  Δ3  Δ4            by the same head; reward and end of arriving at x[t+1] at a[t]

I(x) is a continuous token, what a small convolutional network makes of the frame: words tell only what is new, and without the frames
one would have to add them all up. In a dream the tokenizer draws each next frame, which becomes the next I-token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.causal_transformer import Cache, CausalTransformer
from gymlab.components.delta_iris_config import DeltaIRISConfig
from gymlab.components.delta_tokenizer import DeltaTokenizer, init_transformer_weights
from gymlab.components.frame_codecs import FrameEncoder
from gymlab.components.symlog import TwoHot

SIGNS = 3
"""Classes of a reward of which only the sign is learned: -1, 0, 1."""


class Head(nn.Sequential):
    """Two layers."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


@dataclass(frozen=True, slots=True)
class TokenDream:
    """Dreams under way: the frames that they are at, and what the transformer has read up to them."""

    frame: Tensor
    """[B, C, S, S] in 0..1."""
    unread: Tensor | None
    """[B, W] the last word of the frame, which like the frame itself is read with the next action; None: both have been read."""
    cache: Cache


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action in a batch of dreams."""

    dream: TokenDream
    tokens: Tensor
    """[B, K] the words of the new frame."""
    reward: Tensor
    """[B]."""
    ended: Tensor
    """[B] bool."""


class TokenWorldModel(nn.Module):
    """Transformer, embeddings and heads."""

    def __init__(self, config: DeltaIRISConfig, shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.tokens, width = config.tokens, config.width
        self.block = 2 + self.tokens
        self.transformer = CausalTransformer(width, config.layers, config.heads, self.block * config.blocks)
        self.frames = FrameEncoder(shape[0], config.frame_features, config.frame_channels, config.stages)
        self.frame_norm = nn.LayerNorm(width)
        self.actions, self.words = nn.Embedding(num_actions, width), nn.Embedding(config.codebook_size, width)
        self.two_hot = TwoHot(spacing="symlog") if config.rewards == "two_hot" else None
        self.word_head = Head(width, config.codebook_size)
        self.reward_head = Head(width, SIGNS if self.two_hot is None else self.two_hot.size)
        self.end_head = Head(width, 2)
        self.apply(init_transformer_weights)

    def frame_tokens(self, frames: Tensor) -> Tensor:
        """[..., C, S, S] -> [..., W]; features row by row, channels last."""
        features: Tensor = self.frames(frames)
        return self.frame_norm(features.movedim(-3, -1).flatten(-3))

    def losses(
        self, frames: Tensor, actions: Tensor, tokens: Tensor, reward: Tensor, ended: Tensor, mask: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Cross-entropies over the steps that are real. frames [B, T, C, S, S]; actions, reward, ended, mask [B, T]; tokens [B, T, K]."""
        parts = [self.frame_tokens(frames).unsqueeze(2), self.actions(actions).unsqueeze(2), self.words(tokens)]
        # What the last word of all would be asked is nothing.
        sequence = torch.cat(parts, dim=2).flatten(1, 2)[:, :-1]  # [B, T * block - 1, W]
        outputs = functional.pad(self.transformer(sequence), (0, 0, 0, 1)).unflatten(1, (-1, self.block))[mask]
        words = self.word_head(outputs[:, 1:-1])  # [steps, K, words]
        rewards, ends = self.reward_head(outputs[:, 1]).float(), self.end_head(outputs[:, 1]).float()
        targets = tokens[mask]
        losses = {
            "words": functional.cross_entropy(words.float().flatten(0, 1), targets.flatten()),
            "reward": self._reward_loss(rewards, reward[mask]),
            "end": functional.cross_entropy(ends, ended[mask].long()),
        }
        with torch.no_grad():
            accuracy = (words.argmax(-1) == targets).float().mean()
            error = (self.read_reward(rewards) - reward[mask]).abs().mean()
        return losses, {"word_accuracy": accuracy, "reward_error": error}

    def _reward_loss(self, logits: Tensor, reward: Tensor) -> Tensor:
        if self.two_hot is None:
            return functional.cross_entropy(logits, reward.sign().long() + 1)
        return self.two_hot.loss(logits, reward).mean()

    def read_reward(self, logits: Tensor) -> Tensor:
        """The likeliest sign, or the mean over bins."""
        return logits.argmax(-1).float() - 1 if self.two_hot is None else self.two_hot.mean(logits)

    # Dreaming

    @torch.no_grad()
    def begin(self, frames: Tensor, actions: Tensor, tokens: Tensor) -> TokenDream:
        """Dreams that have seen frames [B, T + 1, C, S, S], with the actions [B, T] and words [B, T, K] between them."""
        read = self.frame_tokens(frames)  # [B, T + 1, W]
        parts = [read[:, :-1].unsqueeze(2), self.actions(actions).unsqueeze(2), self.words(tokens)]
        sequence = torch.cat([torch.cat(parts, dim=2).flatten(1, 2), read[:, -1:]], dim=1)
        _, cache = self.transformer.go_on(sequence, self.transformer.empty(len(frames)))
        return TokenDream(frames[:, -1], None, cache)

    @torch.no_grad()
    def step(
        self, dream: TokenDream, action: Tensor, tokenizer: DeltaTokenizer, noise: Tensor | None = None
    ) -> Outcome:
        """One action [B] further. noise [B, K + 2, classes] is Gumbel's, for words, reward and end; None: the likeliest of all."""
        cache, unread = dream.cache, []
        if cache.room <= self.block:
            # The places are used up: go on from the frame alone.
            cache, unread = self.transformer.empty(len(action)), [self.frame_tokens(dream.frame)]
        elif dream.unread is not None:
            unread = [dream.unread, self.frame_tokens(dream.frame)]
        outputs, cache = self.transformer.go_on(torch.stack([*unread, self.actions(action)], dim=1), cache)
        acted = outputs[:, -1]
        ended = _choose(self.end_head(acted), None if noise is None else noise[:, self.tokens]).bool()
        rewards = self.reward_head(acted)
        drawn_sign = self.two_hot is None and noise is not None
        reward = (
            _choose(rewards, noise[:, self.tokens + 1]).float() - 1
            if drawn_sign and noise is not None
            else self.read_reward(rewards)
        )
        chosen = [_choose(self.word_head(acted), None if noise is None else noise[:, 0])]
        for place in range(1, self.tokens):
            outputs, cache = self.transformer.go_on(self.words(chosen[-1]).unsqueeze(1), cache)
            chosen.append(_choose(self.word_head(outputs[:, -1]), None if noise is None else noise[:, place]))
        tokens = torch.stack(chosen, dim=1)
        frame = tokenizer.next_frame(dream.frame, action, tokens)
        return Outcome(TokenDream(frame, self.words(chosen[-1]), cache), tokens, reward, ended)


def _choose(logits: Tensor, noise: Tensor | None) -> Tensor:
    """[B, classes] -> [B] drawn by Gumbel's noise, of which there may be more than classes, or the likeliest."""
    return (logits if noise is None else logits + noise[:, : logits.shape[-1]]).argmax(-1)
