import math

import numpy as np
import pytest

from gymlab.metrics.statistics import (
    FEWEST,
    Interval,
    achievement_score,
    aggregate,
    binned_curves,
    estimate,
    estimates,
    improvement,
    iqm,
    iqm_bounds,
    mean_bounds,
    median_bounds,
    newcombe,
    probability_of_improvement,
    t_quantile,
    task_mean_bounds,
    wilson,
)

SAMPLES = 20_000
"""Simulated samples; the standard error of a coverage of 95% is 0.15 points then."""


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm((0, 1, 2, 3, 4, 5, 6, 100)) == 3.5
    assert np.mean((0, 1, 2, 3, 4, 5, 6, 100)) == 15.125
    assert iqm([[0, 100], [1, 6], [2, 5], [3, 4]]) == 3.5
    scipy_stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).normal(size=37)
    assert iqm(values) == pytest.approx(scipy_stats.trim_mean(values, 0.25), rel=1e-12)


def covered(bounds, true):
    """The share of intervals that hold the true value."""
    low, high = bounds
    return float(np.mean((low <= true) & (true <= high)))


@pytest.mark.parametrize("n", [5, 10, 30, 100])
def test_intervals_over_seeds_hold_the_truth_in_95_percent_of_cases(n):
    # The percentile bootstrap held it in 84% of cases for n=5 and in 90% for n=10.
    samples = np.random.default_rng(n).normal(480.0, 12.0, size=(SAMPLES, n))
    for bounds in (mean_bounds, iqm_bounds, median_bounds):
        assert covered(bounds(samples), 480.0) == pytest.approx(0.95, abs=0.02), bounds.__name__
    low, high = mean_bounds(samples[0])
    assert estimate(samples[0]).ci95 == pytest.approx([low, high])
    assert estimates(samples[0][:, None])["iqm"].ci95 == pytest.approx(list(map(float, iqm_bounds(samples[0]))))
    assert estimates(samples[0][:, None])["median"].ci95 == pytest.approx(list(map(float, median_bounds(samples[0]))))


CAP = 500.0
SKEWED = {
    "long tail upwards": lambda generator, shape: generator.exponential(100.0, shape),
    "long tail downwards": lambda generator, shape: -generator.exponential(100.0, shape),
    "most at the cap": lambda generator, shape: np.minimum(CAP, generator.normal(490.0, 40.0, shape)),
    "one in ten fails": lambda generator, shape: np.where(
        generator.random(shape) < 0.1, generator.normal(50.0, 20.0, shape), generator.normal(480.0, 10.0, shape)
    ),
}


@pytest.mark.parametrize("kind", SKEWED)
def test_intervals_over_a_hundred_episodes_hold_the_truth_of_skewed_returns_too(kind):
    draw = SKEWED[kind]
    true = draw(np.random.default_rng(0), 4_000_000).mean()
    samples = draw(np.random.default_rng(1), (SAMPLES, 100))
    assert covered(mean_bounds(samples), true) == pytest.approx(0.95, abs=0.02)
    assert estimate(samples[0], episodes=True).ci95 == pytest.approx(list(map(float, mean_bounds(samples[0]))))


@pytest.mark.parametrize(
    ("n", "lognormal", "fails"), [(5, 0.82, 0.40), (10, 0.84, 0.65), (30, 0.89, 0.90), (100, 0.91, 0.94)]
)
def test_of_few_skewed_values_the_interval_holds_less_than_it_says(n, lognormal, fails):
    """As docs/how-to/compare-runs.md tells."""
    generator = np.random.default_rng(n)
    assert covered(mean_bounds(generator.lognormal(size=(SAMPLES, n))), math.exp(0.5)) == pytest.approx(
        lognormal, abs=0.015
    )
    samples = SKEWED["one in ten fails"](generator, (SAMPLES, n))
    assert covered(mean_bounds(samples), 0.1 * 50.0 + 0.9 * 480.0) == pytest.approx(fails, abs=0.02)


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.98])
@pytest.mark.parametrize("n", [30, 100])
def test_a_success_rate_has_the_interval_of_wilson(rate, n):
    successes = np.random.default_rng(n).binomial(n, rate, SAMPLES)
    ends = np.array([wilson(count, n) for count in range(n + 1)])
    covers = covered((ends[successes, 0], ends[successes, 1]), rate)
    # So few outcomes are possible near 1 that no interval of them comes closer; Student's t would fall to 45% at 0.98.
    assert 0.92 <= covers <= 0.99
    assert estimate([1.0] * 97 + [0.0] * 3, episodes=True).ci95 == pytest.approx(list(wilson(97, 100)))
    assert str(estimate([1.0] * 100, episodes=True)) == "1.000 [0.963, 1.000]"
    # Returns of 0 alone need not be failures: the task may pay anything.
    assert str(estimate([0.0] * 100, episodes=True)) == "0.000 (all 100 equal)"
    # Means over seeds are no successes, though they may be 1.
    assert str(estimate([1.0] * 5)) == "1.000 (all 5 equal)"


def test_the_quantiles_are_those_of_student():
    scipy_stats = pytest.importorskip("scipy.stats")
    freedoms = [*range(1, 31), 99, 999]
    found = [t_quantile(freedom) for freedom in freedoms]
    assert found == pytest.approx(scipy_stats.t.ppf(0.975, freedoms).tolist(), rel=5e-4)
    assert t_quantile(4) == pytest.approx(2.7764, rel=5e-4)


def test_width_shrinks_with_the_root_of_n():
    generator = np.random.default_rng(2)
    widths = [np.subtract(*estimate(generator.normal(size=n)).ci95[::-1]) for n in (100, 10_000)]
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.25)


def test_equal_values_have_zero_width_and_say_so():
    found = estimate([0.1] * 30)
    assert (found.mean, found.ci95) == (0.1, [0.1, 0.1])
    assert str(found) == "0.100 (all 30 equal)"
    assert str(estimate([0.1] * 3)) == "0.100 (all 3 equal)"


def test_fewer_than_five_show_their_range_and_call_it_that():
    found = estimate([480.0, 500.0, 490.0])
    assert found == Interval(490.0, None, None, 3, 480.0, 500.0)
    assert str(found) == "490.0 (range 480.0 to 500.0)"
    assert found.words == "mean and range"
    assert estimate([480.0, 500.0, 490.0, 491.0, 492.0]).ci95 is not None
    assert FEWEST == 5
    assert str(estimate([3.0])) == "3.000 (n=1, no interval)"
    assert estimate([3.0]).words == "a single value"
    with pytest.raises(ValueError, match="at least one"):
        estimate([])


def test_estimate_prints_for_people():
    assert str(Interval(487.25, 471.0, 500.0, 100)) == "487.2 [471.0, 500.0]"
    assert str(Interval(0.7402, 0.7, 0.78, 100)) == "0.740 [0.700, 0.780]"
    assert str(Interval(0.7402, None, None, 3)) == "0.740 (n=3, no interval)"


def test_a_summary_of_few_that_carries_an_interval_is_shown_without():
    few = {"mean": 34.0, "ci95": [34.0, 34.0], "n": 1, "min": 34.0, "max": 34.0}
    assert str(Interval.of_result(few)) == "34.0 (n=1, no interval)"
    three = {"mean": 34.0, "ci95": [30.5, 37.5], "n": 3, "min": 30.0, "max": 38.0}
    assert str(Interval.of_result(three)) == "34.0 (range 30.0 to 38.0)"
    assert str(Interval.of_result({**three, "n": 10})) == "34.0 [30.5, 37.5]"
    found = estimate(np.arange(10.0))
    told = {"mean": found.mean, "ci95": found.ci95, "n": 10, "min": 0.0, "max": 9.0}
    assert Interval.of_result(told) == found


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
    band = binned_curves(steps, values, bins=4)
    assert band.steps.tolist() == [10, 20, 30, 40]
    assert band.middle.tolist() == [2.0, 5.0, 5.5, 6.0]
    assert (band.low[0], band.high[0], band.words) == (1.0, 3.0, "range")


def test_bins_before_a_runs_first_value_leave_it_out():
    band = binned_curves([[10, 20], [20]], [[1.0, 2.0], [4.0]], bins=2)
    assert band.steps.tolist() == [10, 20]
    assert band.middle.tolist() == [1.0, 3.0]


def test_curves_of_five_seeds_have_the_interval_and_before_the_fifth_has_a_value_none():
    steps = [[10, 20]] * 4 + [[20]]
    values = [[float(seed), 10.0 + seed] for seed in range(4)] + [[14.0]]
    band = binned_curves(steps, values, bins=2)
    assert np.isnan([band.low[0], band.high[0]]).all()
    assert [band.low[1], band.high[1]] == pytest.approx(estimate([10.0, 11.0, 12.0, 13.0, 14.0]).ci95)
    assert band.words == "95% interval"


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


def test_probability_of_improvement_has_a_width_where_all_runs_of_one_are_better():
    better, worse = np.arange(10.0, 15.0)[:, None], np.arange(5.0)[:, None]
    found = improvement(better, worse)
    assert found.mean == 1.0
    # The bootstrap would say 1.000 [1.000, 1.000]; of 5 against 5 it holds the truth in 40% of cases where that is 0.96.
    assert 0.5 < found.low < 0.8
    assert found.high == 1.0
    assert improvement(worse, better).high == pytest.approx(1 - found.low)
    few = improvement(better[:3], worse)
    assert (few.mean, few.ci95, few.n) == (1.0, None, 3)
    assert str(few) == "1.000 (n=3, no interval)"


def test_probability_of_improvement_over_tasks_has_a_width_too():
    better, worse = np.arange(10.0).reshape(5, 2) + 100, np.arange(10.0).reshape(5, 2)
    found = improvement(better, worse)
    assert (found.mean, found.high) == (1.0, 1.0)
    # Narrower than of one task, for which the same runs tell half as much.
    assert improvement(better[:, :1], worse[:, :1]).low < found.low < 0.8
    assert str(found) == "1.000 [0.790, 1.000]"


@pytest.mark.parametrize("shifts", [(0.0, 0.0), (2.0, 2.0), (1.0,) * 10, (0.0, 1.0, 2.0, 3.0), (-2.0, 2.0)])
@pytest.mark.parametrize("n", [5, 30])
def test_the_probability_of_improvement_over_tasks_holds_the_truth_in_95_percent_of_cases_or_more(n, shifts):
    true = np.mean([0.5 + 0.5 * math.erf(shift / 2) for shift in shifts])
    generator, count, holds = np.random.default_rng(n), 500, 0
    for _ in range(count):
        first, second = generator.normal(shifts, size=(n, len(shifts))), generator.normal(size=(n, len(shifts)))
        found = improvement(first, second)
        holds += found.low <= true <= found.high
    assert holds / count >= 0.93


@pytest.mark.parametrize("n", [5, 10, 30, 100])
@pytest.mark.parametrize("apart", [0.0, 1.0, 2.0])
def test_the_probability_of_improvement_holds_the_truth_in_95_percent_of_cases(n, apart):
    true = 0.5 + 0.5 * math.erf(apart / 2)
    generator = np.random.default_rng(n)
    count = 3000
    first, second = generator.normal(apart, size=(count, n)), generator.normal(size=(count, n))
    # The rank sum of the first group among both gives the share of pairs that it wins.
    ranks = np.argsort(np.argsort(np.hstack([first, second]), axis=1), axis=1)[:, :n] + 1
    found, times = np.unique((ranks.sum(axis=1) - n * (n + 1) / 2) / n**2, return_counts=True)
    ends = np.array([newcombe(float(value), n, n) for value in found])
    covers = times[(ends[:, 0] <= true) & (true <= ends[:, 1])].sum() / count
    assert covers == pytest.approx(0.95, abs=0.03)


def test_one_run_has_no_interval_in_any_estimate():
    for found in aggregate([[1.0, 5.0]]).values():
        assert (found.low, found.high, found.n) == (None, None, 1)
    for first, second in (([[1.0]], [[2.0]]), ([[1.0], [3.0], [5.0]], [[2.0]])):
        found = probability_of_improvement(first, second)
        assert (found.low, found.high, found.n) == (None, None, 1)
        assert str(found).endswith("(n=1, no interval)")


def test_the_median_of_one_task_is_of_its_runs_and_of_several_of_their_means():
    assert estimates([[1.0], [2.0], [9.0]])["median"].mean == 2.0
    assert estimates([[0.0, 2.0], [1.0, 4.0], [2.0, 6.0]])["median"].mean == 2.5


def test_several_tasks_are_pooled_by_the_bootstrap_of_rliable_from_five_runs_on():
    scores = np.random.default_rng(0).normal(size=(5, 3))
    pooled = aggregate(scores)
    for name in ("iqm", "median"):
        assert estimates(scores)[name] == pooled[name]
    for name, found in estimates(scores[:4]).items():
        assert (found.mean, found.ci95) == (aggregate(scores[:4])[name].mean, None)
    assert improvement(scores, scores - 0.5).mean == probability_of_improvement(scores, scores - 0.5).mean


def test_the_mean_over_several_tasks_by_hand():
    scores = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]])
    # One task varies: 4 degrees of freedom, and half the deviation that its own mean has.
    low, high = mean_bounds(scores[:, 0])
    assert estimates(scores)["mean"].ci95 == pytest.approx([1.5 - (high - low) / 4, 1.5 + (high - low) / 4])
    # Two vary alike: 8 degrees of freedom.
    scores[:, 1] = scores[::-1, 0]
    half = t_quantile(8) * math.sqrt(2 * 2.5 / 5) / 2
    assert estimates(scores)["mean"].ci95 == pytest.approx([2.0 - half, 2.0 + half])


@pytest.mark.parametrize(("runs", "tasks"), [(5, 2), (5, 10), (10, 2), (30, 2)])
@pytest.mark.parametrize("unequal", [False, True])
def test_what_intervals_over_several_tasks_hold(runs, tasks, unequal):
    """That of the mean what it says; the bootstrap's of IQM and median what docs/how-to/compare-runs.md says."""
    generator = np.random.default_rng(runs)
    deviations = np.linspace(0.1, 1.0, tasks) if unequal else np.ones(tasks)
    centres = np.linspace(0.0, 0.5, tasks) if unequal else np.zeros(tasks)
    # An IQM of so many scores is expected to be that of samples of the same size.
    expected = np.mean([iqm(generator.normal(centres, deviations, (runs, tasks))) for _ in range(4000)])
    true = {"iqm": expected, "median": np.median(centres), "mean": centres.mean()}
    holds, count = dict.fromkeys(true, 0), 500
    for seed in range(count):
        scores = generator.normal(centres, deviations, (runs, tasks))
        low, high = task_mean_bounds(scores)
        holds["mean"] += low <= true["mean"] <= high
        pooled = aggregate(scores, seed=seed, resamples=300)
        for name in ("iqm", "median"):
            holds[name] += pooled[name].low <= true[name] <= pooled[name].high
    assert holds["mean"] / count == pytest.approx(0.95, abs=0.03)
    least = {5: 0.81, 10: 0.86, 30: 0.90}[runs]
    assert min(holds["iqm"], holds["median"]) / count >= least
    if unequal and runs == 5:
        assert min(holds["iqm"], holds["median"]) / count < 0.91


@pytest.mark.parametrize(
    ("values", "kept"), [([0, 5, 5, 5, 5, 5, 5, 5, 5, 9], 5.0), ([1, 7, 7, 7, 7, 7, 7, 7, 7, 7], 7.0)]
)
def test_runs_of_which_the_middle_ones_are_equal_are_not_all_equal(values, kept):
    for name in ("iqm", "median"):
        found = estimates(np.array(values)[:, None])[name]
        assert (found.mean, found.ci95) == (kept, None)
        assert str(found) == f"{kept:.3f} (range {values[0]:.3f} to {values[-1]:.3f})"
    same_within_a_task = np.tile([1.0, 5.0], (5, 1))
    assert str(estimates(same_within_a_task)["median"]) == "3.000 (all 5 equal)"
    one_varies = np.hstack([np.tile([1.0, 3.0], (5, 1)), np.arange(5.0, 10.0)[:, None]])
    assert str(estimates(one_varies)["median"]) == "3.000 (n=5, no interval)"


def test_the_median_of_five_runs_lies_within_their_range():
    assert estimates([[3.0], [1.0], [2.0], [5.0], [4.0]])["median"].ci95 == [1.0, 5.0]


def test_curves_of_the_middle_half():
    steps = [np.array([1.0, 2.0])] * 4
    values = [np.array([0.0, value]) for value in (0.0, 4.0, 6.0, 100.0)]
    band = binned_curves(steps, values, bins=2, statistic="iqm")
    assert band.middle.tolist() == [0.0, 5.0]
    assert (band.low[1], band.high[1]) == (0.0, 100.0)


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
