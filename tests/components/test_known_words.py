"""Words that are kept by episode and place."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from gymlab.components.known_words import KnownWords
from gymlab.engine.state import decode, encode


class Asker:
    """Finds words that tell the episode and the place, and remembers what it was asked."""

    def __init__(self, episodes: list[int], starts: list[int], length: int) -> None:
        self.episodes, self.starts = np.array(episodes), np.array(starts)
        self.places = self.starts[:, None] + np.arange(length)
        self.asked = np.zeros(self.places.shape, bool)

    def find(self, steps: np.ndarray) -> np.ndarray:
        self.asked = steps
        row, at = steps.nonzero()
        return np.stack([self.episodes[row], self.places[row, at]], axis=1)

    def words(self, known: KnownWords, real: np.ndarray | None = None) -> np.ndarray:
        self.asked = np.zeros(self.places.shape, bool)
        real = np.ones(self.places.shape, bool) if real is None else real
        return known.of(self.episodes, self.starts, real, self.find)


def test_only_what_is_unknown_is_asked_for() -> None:
    known = KnownWords(2)
    first = Asker([7, 7], [0, 5], 3)
    assert first.words(known)[1].tolist() == [[7, 5], [7, 6], [7, 7]]
    second = Asker([7, 8], [2, 2], 4)
    assert second.words(known).tolist() == [[[7, 2], [7, 3], [7, 4], [7, 5]], [[8, 2], [8, 3], [8, 4], [8, 5]]]
    assert second.asked.tolist() == [[False, True, True, False], [True] * 4]
    known.forget()
    second.words(known)
    assert second.asked.all()


def test_padding_has_word_0_and_is_never_asked_for() -> None:
    known, asker = KnownWords(2), Asker([3], [-2], 4)
    real = np.array([[False, False, True, True]])
    assert asker.words(known, real).tolist() == [[[0, 0], [0, 0], [3, 0], [3, 1]]]
    assert asker.asked.tolist() == real.tolist()
    # What lies before an episode is not taken from its end.
    assert asker.words(known, real).tolist() == [[[0, 0], [0, 0], [3, 0], [3, 1]]]
    assert not asker.asked.any()


@pytest.mark.parametrize("episodes", [[], [4], [4, 9]])
def test_it_comes_back_from_its_state(episodes: list[int]) -> None:
    known = KnownWords(2)
    asker = Asker(episodes, [1] * len(episodes), 3)
    words = asker.words(known)
    tensors: dict[str, torch.Tensor] = {}
    encoded = json.dumps(encode(known.get_state(), "words", tensors))
    again = KnownWords(2)
    again.set_state(decode(json.loads(encoded), tensors))
    assert (asker.words(again) == words).all()
    assert not asker.asked.any()
