import pytest

from gymlab.bench.measure import Mark, Repeats, fastest, interleave, median_ratio, rate_of, ratios


def test_the_rate_leaves_out_the_warm_up():
    # Two slow cycles of 10 s, then 100 steps a second of wall time and 50 a second of CPU time.
    marks = [
        Mark(0, 0.0, 0.0),
        Mark(100, 10.0, 10.0),
        Mark(200, 20.0, 20.0),
        Mark(300, 21.0, 22.0),
        Mark(400, 22.0, 24.0),
    ]
    rate = rate_of(marks)
    assert (rate.env_steps, rate.wall, rate.cpu) == (200, 2.0, 4.0)
    assert rate.per_second == 100.0
    assert rate.per_cpu_second == 50.0


def test_a_long_training_leaves_out_a_tenth():
    marks = [Mark(10 * index, float(index), float(index)) for index in range(101)]
    assert rate_of(marks).env_steps == 10 * (100 - 11)


def test_a_training_cut_short_still_has_a_rate():
    assert rate_of([Mark(0, 0.0, 0.0), Mark(50, 10.0, 5.0)]).per_second == 5.0
    with pytest.raises(ValueError, match="at least two marks"):
        rate_of([Mark(0, 0.0, 0.0)])


def test_repeats_are_interleaved():
    order = []
    interleave("abc", 2, lambda name, repeat: order.append((name, repeat)) or {})
    assert order == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("c", 1)]


def test_noise_that_hits_a_whole_repeat_cancels_in_the_ratio():
    slowdown = [1.0, 0.25, 0.5]
    speed = {"ours": 30.0, "theirs": 10.0}
    measured = interleave(speed, 3, lambda name, repeat: {"rate": speed[name] * slowdown[repeat]})
    assert measured["ours"].values("rate") == [30.0, 7.5, 15.0]
    assert measured["ours"].median("rate") == 15.0
    assert ratios(measured["ours"], measured["theirs"], "rate") == [3.0, 3.0, 3.0]
    assert median_ratio(measured["ours"], measured["theirs"], "rate") == 3.0


def test_the_median_is_of_the_ratios_and_not_a_ratio_of_medians():
    ours = Repeats([{"rate": 10.0}, {"rate": 20.0}, {"rate": 90.0}])
    theirs = Repeats([{"rate": 10.0}, {"rate": 5.0}, {"rate": 30.0}])
    assert median_ratio(ours, theirs, "rate") == 3.0  # of 1, 4 and 3; the medians would give 20 / 10


def test_a_failing_contender_is_noted_once_and_the_others_go_on():
    calls = []

    def measure(name, repeat):
        calls.append(name)
        if name == "bad":
            raise RuntimeError("it broke")
        return {"rate": 1.0}

    measured = interleave(["good", "bad"], 3, measure, failures=(RuntimeError,))
    assert calls == ["good", "bad", "good", "good"]
    assert measured["bad"].errors == ["it broke"]
    assert measured["bad"].results == [None, None, None]
    assert measured["bad"].median("rate") is None
    assert median_ratio(measured["good"], measured["bad"], "rate") is None


def test_an_error_that_is_not_expected_is_not_hidden():
    def measure(name, repeat):
        raise KeyError("a mistake of ours")

    with pytest.raises(KeyError):
        interleave(["a"], 1, measure, failures=(RuntimeError,))


def test_the_fastest_is_by_median_and_skips_failures():
    measured = {"a": Repeats([{"rate": 1.0}]), "b": Repeats([{"rate": 2.0}]), "c": Repeats([None], ["broke"])}
    assert fastest(measured, ["a", "b", "c", "absent"], "rate") == "b"
    assert fastest(measured, ["c"], "rate") is None
