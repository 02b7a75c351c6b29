"""Browsing recorded episodes."""

import numpy as np
import pytest

from gymlab.api import resolve
from gymlab.engine.recorded_game import RecordedGame
from gymlab.engine.saved_episodes import EpisodeEntry, SavedEpisode
from gymlab.errors import GymlabError

CONFIG = resolve("CartPole-v1:ppo").config


def entry(split, name, steps):
    episode = SavedEpisode(
        np.full((steps + 1, 4), 0.01, np.float32), np.arange(steps) % 2, np.arange(1, steps + 1, dtype=np.float32)
    )
    return EpisodeEntry(split, "replay", name, steps, float(episode.rewards.sum()), "terminated", lambda: episode)


class Film:
    """Two small frames."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.full((50, 80, 3), index, np.uint8)

    def close(self):
        pass


@pytest.fixture
def game():
    with RecordedGame(CONFIG, [entry("test", "t0", 2), entry("train", "a", 3), entry("train", "b", 1)]) as game:
        yield game


def test_what_was_done_is_what_is_next(game):
    game.begin()
    assert not game.by_hand
    assert (game.steps, game.reward, game.env_return, game.decision.action) == (0, None, 0.0, 0)
    game.step()
    assert (game.steps, game.reward, game.action, game.decision.action) == (1, 1.0, 0, 1)
    game.step()
    assert (game.steps, game.reward, game.env_return, game.ending, game.decision) == (2, 2.0, 3.0, "terminated", None)
    assert game.frame().shape == (400, 600, 3)
    game.go(1)
    assert (game.ending, game.env_return) == (None, 1.0)


def test_from_one_to_the_next_and_back(game):
    game.begin()
    assert game.place == "test 1 of 1: t0"
    game.begin()
    assert game.place == "train 1 of 2: a"
    game.begin()
    assert game.place == "train 2 of 2: b"
    game.begin()
    assert game.entry.name == "t0"
    game.choose_split()
    assert game.entry.name == "a"
    game.choose(game.episode - 2)
    assert game.entry.name == "t0"
    game.choose(game.episode - 2)
    assert game.entry.name == "b"
    assert sum(1 for _ in game.play(2)) == 3 + 4
    assert [episode.length for episode in game.finished[-2:]] == [2, 3]


def test_pictures_of_one_size_make_a_film():
    film = EpisodeEntry("test", "video", "film", None, None, "", lambda: SavedEpisode(frames=Film()))
    with RecordedGame(CONFIG, [film, entry("train", "a", 1)], one_size=True) as game:
        sizes = [game.frame().shape for _ in game.play(2)]
    assert sizes == [(50, 80, 3)] * 4
    with RecordedGame(CONFIG, [film, entry("train", "a", 1)]) as game:
        assert [game.frame().shape for _ in game.play(2)] == [(50, 80, 3)] * 2 + [(400, 600, 3)] * 2


def test_nothing_saved_is_said():
    with pytest.raises(GymlabError, match="saved no episodes"):
        RecordedGame(CONFIG, [])
