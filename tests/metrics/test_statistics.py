import numpy as np
import pytest

from gymlab.metrics.statistics import (
    Interval,
    achievement_score,
    aggregate,
    binned_curves,
    estimate,
    iqm,
    mean_ci95,
    wilson,
)


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm((0, 1, 2, 3, 4, 5, 6, 100)) == 3.5
    assert np.mean((0, 1, 2, 3, 4, 5, 6, 100)) == 15.125
    assert iqm([[0, 100], [1, 6], [2, 5], [3, 4]]) == 3.5
    scipy_stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).normal(size=37)
    assert iqm(values) == pytest.approx(scipy_stats.trim_mean(values, 0.25), rel=1e-12)


def test_bootstrap_interval_of_the_mean():
    values = np.random.default_rng(1).normal(10.0, 2.0, size=400)
    low, high = mean_ci95(values)
    assert low < values.mean() < high
    # 1.96 standard errors either side, to within the bootstrap's own noise.
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert mean_ci95(values) == (low, high)
    assert mean_ci95(values, seed=1) != (low, high)


def test_width_shrinks_with_the_root_of_n():
    generator = np.random.default_rng(2)
    widths = [np.subtract(*mean_ci95(generator.normal(size=n))[::-1]) for n in (100, 10_000)]
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.25)


def test_equal_values_and_a_single_one_have_zero_width():
    assert mean_ci95([0.1] * 30) == (0.1, 0.1)
    assert mean_ci95([3.0]) == (3.0, 3.0)
    assert str(estimate([3.0])) == "3.000 (n=1, no interval)"
    with pytest.raises(ValueError, match="at least one"):
        mean_ci95([])


def test_many_values_are_drawn_in_chunks():
    values = np.arange(30_000.0)
    low, high = mean_ci95(values, resamples=300)
    assert low < values.mean() < high


def test_estimate_prints_for_people():
    assert str(Interval(487.25, 471.0, 500.0, 100)) == "487.2 [471.0, 500.0]"
    assert str(Interval(0.7402, 0.7, 0.78, 100)) == "0.740 [0.700, 0.780]"


def test_wilson_interval_of_the_sheet():
    low, high = wilson(320, 500)
    assert (round(low, 3), round(high, 3)) == (0.597, 0.681)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match="11 successes of 10"):
        wilson(11, 10)


def test_aggregates_over_runs_and_tasks():
    scores = np.array([[0.0, 2.0], [1.0, 4.0], [2.0, 6.0]])
    results = aggregate(scores)
    assert results["mean"].mean == 2.5
    assert results["median"].mean == 2.5  # of the task means 1 and 4
    assert results["iqm"].mean == 2.25  # (1 + 2 + 2 + 4) / 4
    assert results["optimality_gap"].mean == pytest.approx(1 - 5 / 6)
    for result in results.values():
        assert result.low <= result.mean <= result.high
        assert result.n == 3
    # Runs are drawn within a task: a task whose runs agree adds no width.
    agreed = aggregate(np.array([[1.0, 5.0], [1.0, 5.0]]))
    assert agreed["mean"] == Interval(3.0, 3.0, 3.0, 2)
    with pytest.raises(ValueError, match="runs x tasks"):
        aggregate([1.0, 2.0])


def test_curves_of_seeds_are_binned_by_env_step_and_held_after_a_runs_end():
    steps = [[10, 20, 30, 40], [10, 20]]
    values = [[1.0, 2.0, 3.0, 4.0], [3.0, 8.0]]
    ends, mean, low, high = binned_curves(steps, values, bins=4)
    assert ends.tolist() == [10, 20, 30, 40]
    assert mean.tolist() == [2.0, 5.0, 5.5, 6.0]
    assert low[0] == 1.0
    assert high[0] == 3.0


def test_bins_before_a_runs_first_value_leave_it_out():
    ends, mean, _, _ = binned_curves([[10, 20], [20]], [[1.0, 2.0], [4.0]], bins=2)
    assert ends.tolist() == [10, 20]
    assert mean.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("percentages", "score"), [((100, 50, 10, 1, 0), 9.253281), ((50,) * 22, 50.0), ((100,) * 17 + (0,) * 5, 34.3829)]
)
def test_achievement_score(percentages, score):
    assert achievement_score(percentages) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("percentages", [[], [101.0], [-1.0]])
def test_achievement_score_of_what_is_no_percentage(percentages):
    with pytest.raises(ValueError, match="percentages"):
        achievement_score(percentages)
