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
    probability_of_improvement,
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


def test_equal_values_have_zero_width_and_a_single_one_has_no_interval():
    assert mean_ci95([0.1] * 30) == (0.1, 0.1)
    assert mean_ci95([3.0]) is None
    assert estimate([3.0]) == Interval(3.0, None, None, 1)
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


def test_probability_of_improvement_by_hand():
    # Of the six pairs the first wins (3,2), (3,1) and (2,1), and ties (2,2); (1,1) is a tie and (1,2) a loss.
    found = probability_of_improvement([[3.0], [2.0], [1.0]], [[2.0], [1.0]])
    assert found.mean == pytest.approx((3 + 2 * 0.5) / 6)
    assert found.low <= found.mean <= found.high
    assert probability_of_improvement([[1.0, 0.0]], [[0.0, 1.0]]).mean == 0.5
    with pytest.raises(ValueError, match="tasks"):
        probability_of_improvement([[1.0]], [[1.0, 2.0]])


def test_one_run_has_no_interval_in_any_estimate():
    for found in aggregate([[1.0, 5.0]]).values():
        assert (found.low, found.high, found.n) == (None, None, 1)
    for first, second in (([[1.0]], [[2.0]]), ([[1.0], [3.0], [5.0]], [[2.0]])):
        found = probability_of_improvement(first, second)
        assert (found.low, found.high, found.n) == (None, None, 1)
        assert str(found).endswith("(n=1, no interval)")
    _, _, low, high = binned_curves([[10, 20], [20]], [[1.0, 2.0], [4.0]], bins=2)
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1], high[1]) == (2.0, 4.0)


def test_the_median_of_one_task_is_of_its_runs():
    assert aggregate([[1.0], [2.0], [9.0]])["run_median"].mean == 2.0


def test_curves_of_the_middle_half():
    steps = [np.array([1.0, 2.0])] * 4
    values = [np.array([0.0, value]) for value in (0.0, 4.0, 6.0, 100.0)]
    _, middle, low, high = binned_curves(steps, values, bins=2, statistic="iqm")
    assert middle.tolist() == [0.0, 5.0]
    assert low[1] <= 5.0 <= high[1]


@pytest.fixture
def rliable(monkeypatch):
    """rliable's library and metrics. The arch that it asks for was written for pandas 2: pandas 3 has changed the
    signature of one decorator, which arch uses when it is imported and rliable never.
    """
    pytest.importorskip("rliable")
    decorators = pytest.importorskip("pandas.util._decorators")
    monkeypatch.setattr(decorators, "deprecate_kwarg", lambda *names, **options: lambda function: function)
    library = pytest.importorskip("rliable.library")
    return library, pytest.importorskip("rliable.metrics")


FIVE_SEEDS = {
    "slow": [[299.0], [437.5], [335.1], [500.0], [500.0]],
    "fast": [[235.9], [347.9], [269.3], [498.9], [499.2]],
}
"""Two variants, five seeds each, one environment."""


def draws(seed, resamples, *shapes):
    """The runs that rliable draws, one array of each shape a resample, from NumPy's global generator."""
    np.random.seed(seed)
    drawn = [[np.random.choice(shape[0], shape, replace=True) for shape in shapes] for _ in range(resamples)]
    return [np.stack(column) for column in zip(*drawn, strict=True)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_aggregates_are_those_of_rliable(rliable, tasks):
    library, metrics = rliable
    names = ("iqm", "median", "mean", "optimality_gap")

    def all_four(drawn):
        return np.array([getattr(metrics, f"aggregate_{name}")(drawn) for name in names])

    for seed, scores in enumerate(FIVE_SEEDS.values()):
        matrix = np.hstack([np.array(scores) * (task + 1) / 500 for task in range(tasks)])
        np.random.seed(seed)
        points, intervals = library.get_interval_estimates({"group": matrix}, all_four, reps=2000)
        (indices,) = draws(seed, 2000, matrix.shape)
        ours = aggregate(matrix, indices=indices)
        assert [ours[name].mean for name in names] == pytest.approx(points["group"].tolist(), abs=1e-12)
        bounds = [[ours[name].low for name in names], [ours[name].high for name in names]]
        np.testing.assert_allclose(bounds, intervals["group"], rtol=1e-12)


def test_the_probability_of_improvement_is_that_of_rliable(rliable):
    library, metrics = rliable
    slow, fast = (np.array(scores) for scores in FIVE_SEEDS.values())
    np.random.seed(3)
    points, intervals = library.get_interval_estimates(
        {"pair": (slow, fast)}, metrics.probability_of_improvement, reps=500
    )
    ours = probability_of_improvement(slow, fast, indices=tuple(draws(3, 500, slow.shape, fast.shape)))
    assert ours.mean == pytest.approx(float(points["pair"]))
    np.testing.assert_allclose([ours.low, ours.high], intervals["pair"].ravel(), rtol=1e-12)
