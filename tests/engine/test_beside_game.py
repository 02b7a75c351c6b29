"""Reality and a dream under the same actions."""

import numpy as np
import pytest

import gymlab
from gymlab.engine.beside_game import APART, BesideGame
from gymlab.engine.dream_game import beginning


@pytest.fixture
def game(dreaming_runs):
    with BesideGame(gymlab.load("dreamer", runs_dir=dreaming_runs), seed=4, likeliest=True) as game:
        yield game


def test_the_same_start_the_same_actions_and_the_error_between(game):
    game.begin()
    np.testing.assert_array_equal(game.dreamt, game.observation)
    model, actions, seen = game.dream.model, [1, 0, 1], [np.asarray(game.observation, np.float32)]
    state = model.dream_start(beginning(seen[0], game.env.action_space))
    for number, action in enumerate(actions, 1):
        game.step(action)
        seen.append(np.asarray(game.observation, np.float32))
        state, expected = model.dream_step(state, np.array([action]))
        np.testing.assert_array_equal(game.dreamt, expected.observation[0])
        error = float(np.sqrt(np.mean((expected.observation[0] - seen[-1]) ** 2)))
        assert game.errors[-1] == pytest.approx(error, rel=1e-5)
        assert len(game.errors) == number
    assert game.env_return == 3
    assert game.dream_return != 0
    # On average over all pairs, each with itself included.
    pairs = [np.mean((one - other) ** 2) for one in seen for other in seen]
    assert game.distance == pytest.approx(np.sqrt(np.mean(pairs)), rel=1e-4)
    real, dreamt = game.frames()
    assert real.shape == dreamt.shape == (400, 600, 3)


def test_apart_is_from_when_on_they_stay_apart(game):
    game.begin()
    game.step(0)
    limit = APART * game.distance
    for errors, expected in (([0.5, 2, 0.5, 2, 3], 4), ([0.5, 0.9], None), ([2, 2], 1), ([], None)):
        game.errors = [limit * error for error in errors]
        assert game.apart == expected


def test_another_episode_begins_anew(game):
    game.begin()
    game.step(0)
    first = game.dreamt
    game.begin()
    assert (game.errors, game.dream_return, game.dream_ended, game.steps) == ([], 0.0, None, 0)
    assert not np.array_equal(first, game.dreamt)
