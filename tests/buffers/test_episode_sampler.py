"""Segments: drawn by counts, placed around a moment, padded and masked, and exactly repeatable."""

import gc
import sys

import numpy as np
import pytest
from episode_makers import add_whole, assert_same, check_segments, draw, live, make

from gymlab.errors import CheckpointError, ConfigError


def with_counts(counts, *, lengths=None, **options):
    """Episodes with a sampler that has drawn them so often."""
    episodes = make(capacity=100_000)
    add_whole(episodes, *(lengths or [6] * len(counts)))
    sampler = draw(episodes, **options)
    sampler.set_state({**sampler.get_state(), "counts": np.array(counts)})
    return sampler


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(1.0, [0.571429, 0.285714, 0.142857]), (5.0, [0.968780, 0.030274, 0.000946]), (0.0, [1 / 3] * 3)],
)
def test_probabilities_of_the_paper(alpha, expected):
    np.testing.assert_allclose(with_counts((0, 1, 3), alpha=alpha).probabilities, expected, atol=5e-7)


def test_draws_follow_the_probabilities_whatever_the_length():
    sampler = with_counts((0, 1, 3), lengths=[50, 2, 9], batch_size=7000, length=1)
    sampler.frozen = True
    drawn = np.bincount(sampler.sample().ids, minlength=3)
    # Standard deviations are 41, 38 and 29.
    np.testing.assert_allclose(drawn, [4000, 2000, 1000], atol=160)


def test_counts_go_up_after_each_batch_unless_frozen():
    sampler = with_counts((0, 0, 0, 0), batch_size=16)
    sampler.frozen = True
    batch = sampler.sample()
    assert not sampler.counts.any()
    sampler.frozen = False
    batch = sampler.sample()
    assert batch.count.tolist() == [0] * 16
    expected = np.bincount(batch.ids, minlength=4)
    assert sampler.counts.tolist() == expected.tolist()
    weights = 1 / (1 + expected)
    np.testing.assert_allclose(sampler.probabilities, weights / weights.sum())
    following = sampler.sample()
    np.testing.assert_array_equal(following.count, expected[following.ids])
    assert following.metrics()["replay/world_model/count_spread"] == pytest.approx(expected.std())


def test_samplers_count_apart():
    episodes = make()
    add_whole(episodes, 5, 5)
    one, two = draw(episodes, "tokenizer"), draw(episodes, "controller")
    one.sample()
    assert one.counts.sum() == 8
    assert two.counts.sum() == 0


def test_new_episodes_are_seen_first_with_a_high_alpha():
    sampler = with_counts([20] * 50, alpha=5.0, batch_size=4)
    add_whole(sampler.episodes, 6, first=50)
    assert (sampler.sample().ids == 50).all()


def test_past_the_end_segments_are_padded_on_both_sides_evenly():
    sampler = with_counts((0,), lengths=[3], batch_size=3000, length=4)
    batch = sampler.sample()
    check_segments(batch)
    # A moment of 0 to 2 at a place of 0 to 3 in the window: starts -3 to 2, as often as there are ways.
    ways = np.array([1, 2, 3, 3, 2, 1])
    np.testing.assert_allclose(np.bincount(batch.start + 3), 3000 * ways / 12, atol=120)
    assert batch.mask.sum() == sum(int(n) for n in (batch.values["observation/where"][..., 2] > 0).sum(1))
    assert batch.metrics()["replay/world_model/padding"] == pytest.approx(1 - batch.mask.mean())
    real = ways @ np.array([1, 2, 3, 3, 2, 1]) / 12
    assert batch.mask.sum(1).mean() == pytest.approx(real, abs=0.1)


def test_inside_the_end_segments_are_padded_on_the_left_and_end_where_something_is_to_be_done():
    sampler = with_counts((0,), lengths=[6], batch_size=3000, length=3, past_end=False)
    batch = sampler.sample()
    check_segments(batch)
    assert batch.mask[:, -1].all()
    assert not batch.values["is_last"].any()
    assert (batch.values["action"][:, -1, 1] == 1).all()
    # Of 5 moments with an action, each with a shift of 0 to 2: ends 1 to 5, and those beyond are at 5.
    ways = np.array([1, 2, 3, 3, 6])
    np.testing.assert_allclose(np.bincount(batch.start + 3)[1:], 3000 * ways / 15, atol=120)


def test_the_newest_record_of_an_episode_that_goes_on_may_be_a_segments_end():
    episodes = make()
    live(episodes, (9,), 4)
    batch = draw(episodes, batch_size=200, length=3, past_end=False).sample()
    check_segments(batch)
    assert batch.start.max() == 1
    assert batch.values["observation/where"][..., 2].max() == 4


def test_no_segment_crosses_into_another_episode():
    episodes = make(3, capacity=120)
    samplers = [draw(episodes, seed=seed, past_end=seed == 0, batch_size=32, length=7) for seed in range(2)]
    for at in range(0, 150, 6):
        live(episodes, (5, 13, 2), 6, first=at)
        for sampler in samplers:
            check_segments(sampler.sample())


def test_age_counts_the_episodes_that_began_after():
    sampler = with_counts((0, 0, 0))
    batch = sampler.sample()
    np.testing.assert_array_equal(batch.age, 2 - batch.ids)
    assert batch.metrics()["replay/world_model/age"] == batch.age.mean()


def test_the_same_seed_draws_the_same():
    batches = [with_counts((0, 2, 1), seed=4).sample() for _ in range(2)]
    assert_same(*batches)


def test_nothing_to_draw_from():
    sampler = draw(make())
    assert not sampler.ready()
    with pytest.raises(IndexError, match="no episode yet"):
        sampler.sample()
    add_whole(sampler.episodes, 2)
    assert sampler.ready()
    assert sampler.describe() == {"world_model_batch": "8 x 4"}


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"length": 0}, {"alpha": -1.0}])
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError, match="'world_model'"):
        draw(make(), **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": {"batch_size": 8, "length": 4, "alpha": 2.0, "past_end": True}}, "alpha 2.0, here 1.0"),
        ({"counts": np.array([1, -1])}, "counts make no sense"),
        ({"counts": np.array([1])}, "counts make no sense"),
        ({"ids": np.array([1, 0])}, "counts make no sense"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    sampler = with_counts((0, 0))
    with pytest.raises(CheckpointError, match=message):
        sampler.set_state({**sampler.get_state(), **change})


def calls_of_a_batch(count):
    """Python functions that are called to draw a batch from so many episodes."""
    sampler = with_counts([0] * count, batch_size=4, alpha=0.0)
    sampler.sample()
    calls, real = [], sampler._draw
    # The same four episodes, whatever there are beside them.
    sampler._draw = lambda: (real(), (np.arange(4), np.zeros(4, int)))[1]
    # Packages that other tests import, such as JAX, are called when garbage is collected.
    gc.disable()
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event == "call" else None)
    try:
        sampler.sample()
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(calls)


def test_a_batch_costs_no_more_calls_with_thousands_of_episodes():
    assert calls_of_a_batch(5) == calls_of_a_batch(1000)
