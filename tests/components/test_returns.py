import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymlab.components.returns import (
    discounted_scan,
    episode_return,
    episode_steps,
    explained_variance,
    gae,
    reward_to_go,
    standardize,
    standardize_parts,
)


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)[:, None]


def flags(length: int, *rows: int) -> np.ndarray:
    array = np.zeros((length, 1), dtype=bool)
    array[list(rows)] = True
    return array


REWARDS, VALUES, NEXT_VALUES = column(1, 1, 1), column(0.5, 0.6, 0.7), column(0.6, 0.7, 0.8)


@pytest.mark.parametrize(
    ("terminated_rows", "expected"),
    [
        ((), (3.087884, 2.120026, 1.092)),
        ((2,), (2.387329, 1.37515, 0.3)),
        ((1,), (1.4702, 0.4, 1.092)),
    ],
)
def test_gae_numbers(terminated_rows, expected):
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, flags(3, *terminated_rows), flags(3), 0.99, 0.95)
    np.testing.assert_allclose(advantages[:, 0], expected, rtol=1e-5)
    assert advantages.dtype == np.float32


def test_gae_lambda_one_is_monte_carlo_and_lambda_zero_is_td_error():
    monte_carlo = gae(REWARDS, VALUES, NEXT_VALUES, flags(3), flags(3), 0.99, 1.0)
    assert monte_carlo[0, 0] == pytest.approx(3.246339, abs=1e-5)
    returns = reward_to_go(REWARDS, NEXT_VALUES, flags(3), flags(3), 0.99)
    np.testing.assert_allclose(returns - VALUES, monte_carlo, rtol=1e-5)
    td = gae(REWARDS, VALUES, NEXT_VALUES, flags(3), flags(3), 0.99, 0.0)
    np.testing.assert_allclose(td[:, 0], (1.094, 1.093, 1.092), rtol=1e-6)


def test_gae_without_values():
    zeros = column(0, 0, 0)
    advantages = gae(column(1, 2, 3), zeros, zeros, flags(3, 2), flags(3), 0.5, 0.5)
    np.testing.assert_allclose(advantages[:, 0], (1.6875, 2.75, 3.0))


def test_truncation_does_not_leak_the_next_episode():
    zeros = column(0, 0)
    advantages = gae(column(0, 1), zeros, zeros, flags(2), flags(2, 0), 1.0, 1.0)
    np.testing.assert_array_equal(advantages[:, 0], (0, 1))


def test_truncation_bootstraps_and_termination_does_not():
    values, next_values = column(0, 0), column(5, 7)
    truncated = gae(column(1, 1), values, next_values, flags(2), flags(2, 0, 1), 0.5, 0.9)
    np.testing.assert_allclose(truncated[:, 0], (3.5, 4.5))
    terminated = gae(column(1, 1), values, next_values, flags(2, 0, 1), flags(2), 0.5, 0.9)
    np.testing.assert_allclose(terminated[:, 0], (1, 1))
    both = gae(column(1, 1), values, next_values, flags(2, 0, 1), flags(2, 0, 1), 0.5, 0.9)
    np.testing.assert_allclose(both[:, 0], (1, 1))


def test_one_of_each_ending_in_six_steps():
    """A3: row 1 terminates, row 3 is truncated with V(final) = 10, the rollout ends in the third episode with V = 4."""
    zeros = np.zeros((6, 1), np.float32)
    next_values = column(0, 99, 0, 10, 0, 4)
    advantages = gae(column(1, 2, 3, 4, 5, 6), zeros, next_values, flags(6, 1), flags(6, 3), 0.5, 1.0)
    np.testing.assert_allclose(advantages[:, 0], (1 + 0.5 * 2, 2, 3 + 0.5 * 9, 4 + 5, 5 + 0.5 * 8, 6 + 2))


def naive_gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """One environment, one transition at a time, in float64."""
    advantages = np.zeros(len(rewards))
    for start in range(len(rewards)):
        weight, total = 1.0, 0.0
        for t in range(start, len(rewards)):
            bootstrap = 0.0 if terminated[t] else gamma * next_values[t]
            total += weight * (rewards[t] + bootstrap - values[t])
            weight *= gamma * lam
            if terminated[t] or truncated[t]:
                break
        advantages[start] = total
    return advantages


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 40),
    envs=st.integers(1, 4),
    ending=st.floats(0, 1),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
)
def test_gae_equals_a_naive_reference_on_random_endings(seed, length, envs, ending, gamma, lam):
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, length, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, length, envs)) < ending / 2
    advantages = gae(rewards, values, next_values, terminated, truncated, gamma, lam)
    for env in range(envs):
        columns = (array[:, env] for array in (rewards, values, next_values, terminated, truncated))
        np.testing.assert_allclose(advantages[:, env], naive_gae(*columns, gamma, lam), rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(3, 30))
def test_dead_rows_reach_no_other_row(seed, length):
    """Next-step autoreset: the row behind an ended one is dead, whatever it holds must not matter."""
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, length, 2)).astype(np.float32)
    truncated = np.zeros((length, 2), bool)
    truncated[rng.integers(0, length - 1)] = True
    terminated = np.zeros_like(truncated)
    dead = np.zeros_like(truncated)
    dead[1:] = truncated[:-1]
    clean = gae(rewards, values, next_values, terminated, truncated, 0.9, 0.9)
    for array in (rewards, values, next_values):
        array[dead] = 1e6
    spoilt = gae(rewards, values, next_values, terminated, truncated, 0.9, 0.9)
    np.testing.assert_array_equal(clean[~dead], spoilt[~dead])


def test_scaling_and_shifting():
    """Advantages are linear in reward and value; a constant added to V of an undiscounted problem cancels."""
    scaled = gae(3 * REWARDS, 3 * VALUES, 3 * NEXT_VALUES, flags(3), flags(3), 0.9, 0.9)
    plain = gae(REWARDS, VALUES, NEXT_VALUES, flags(3), flags(3), 0.9, 0.9)
    np.testing.assert_allclose(standardize(scaled), standardize(plain), rtol=1e-5)
    shifted = gae(REWARDS, VALUES + 5, NEXT_VALUES + 5, flags(3), flags(3), 1.0, 0.9)
    np.testing.assert_allclose(shifted, gae(REWARDS, VALUES, NEXT_VALUES, flags(3), flags(3), 1.0, 0.9), rtol=1e-5)


def test_reward_to_go_and_episode_return():
    rewards = column(1, 2, 3, 4)
    returns = reward_to_go(rewards, np.zeros_like(rewards), flags(4, 1), flags(4), 0.5)
    np.testing.assert_allclose(returns[:, 0], (2, 2, 5, 4))
    np.testing.assert_allclose(episode_return(returns, flags(4, 1))[:, 0], (2, 2, 5, 5))
    bootstrapped = reward_to_go(rewards, column(9, 9, 9, 10), flags(4, 1), flags(4), 0.5)
    np.testing.assert_allclose(bootstrapped[:, 0], (2, 2, 7.5, 9))
    truncated = reward_to_go(rewards, column(9, 8, 9, 10), flags(4), flags(4, 1), 0.5)
    np.testing.assert_allclose(truncated[:, 0], (4, 6, 7.5, 9))


def test_scan_of_a_long_constant_series():
    scanned = discounted_scan(np.ones((2048, 1), np.float32), np.full((2048, 1), 0.9, np.float32))
    assert scanned[0, 0] == pytest.approx(10.0, rel=1e-5)
    assert scanned[-1, 0] == 1.0


def test_explained_variance():
    targets = np.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(np.full(4, 2.5), targets) == 0.0
    assert explained_variance(-targets, targets) == pytest.approx(-3.0)
    assert explained_variance(targets, np.ones(4)) == 0.0


def test_standardize_leaves_a_single_number():
    np.testing.assert_array_equal(standardize(np.array([3.0], np.float32)), [3.0])
    np.testing.assert_allclose(standardize(np.array([1.0, 3.0], np.float32)), [-0.70710677, 0.70710677], rtol=1e-6)


def test_standardize_parts_equals_each_part_alone():
    x = np.random.default_rng(0).normal(size=11).astype(np.float32)
    expected = x.copy()
    for part in (expected[0:4], expected[5:11]):
        part[:] = (part - part.mean()) / part.std(ddof=1)
    np.testing.assert_allclose(standardize_parts(x, [0, 4, 5, 11]), expected, rtol=1e-5, atol=1e-6)


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"\[T, N\]"):
        gae(REWARDS, VALUES[:, 0], NEXT_VALUES, flags(3), flags(3), 0.9, 0.9)


def test_steps_are_counted_from_each_episode_s_first_row():
    np.testing.assert_array_equal(episode_steps(flags(6, 1, 4))[:, 0], [0, 1, 0, 1, 2, 0])
