"""Alerts on hand-made series: each fires exactly when it should, once, and comes back the same after a resume."""

import json
import math
from pathlib import Path

import pytest

from gymlab.metrics.alert_rules import APPROX_KL, CLIP_FRACTION, DEAD_UNITS, ENTROPY, EXPLAINED_VARIANCE
from gymlab.metrics.alerts import KINDS, REARM_EPOCHS, Watch
from gymlab.metrics.names import ENV_STEPS, episode_return
from gymlab.metrics.styles import load_styles

STYLES = load_styles()
RETURN = episode_return("train")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "alerts.md"


class Series:
    """A run made of rows: epoch e has 100 e env steps and e episodes."""

    def __init__(self, threshold=None):
        self.watch = Watch(STYLES, threshold)
        self.epoch = 0

    def add(self, row, **moment):
        self.epoch += 1
        given = {"env_steps": 100 * self.epoch, "epoch": self.epoch, "episodes": self.epoch, **moment}
        return self.watch.judge(row, **given)

    def feed(self, name, values):
        """Epoch and id of each alert of one metric's series."""
        return [(alert.epoch, alert.id) for value in values for alert in self.add({name: value})]


def fired(name, values, threshold=None):
    return Series(threshold).feed(name, values)


def test_every_id_has_a_meaning_and_a_tip_of_one_sentence():
    for name, kind in KINDS.items():
        assert name == name.lower().replace("-", "_")
        for sentence in kind:
            assert sentence.endswith(".")
            assert len(sentence) > 20


def test_the_page_lists_every_alert_in_these_words():
    rows = [f"| `{name}` | {kind.meaning} | {kind.tip} |" for name, kind in KINDS.items()]
    assert [line for line in PAGE.read_text().splitlines() if line.startswith("| `")][: len(rows)] == rows


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite(bad):
    series = Series()
    assert series.add({"train/loss/total": 1.0, "own/metric": 2.0}) == []
    (alert,) = series.add({"train/loss/policy": 0.1, "train/loss/total": bad, "own/metric": bad})
    assert (alert.id, alert.metric, alert.env_steps, alert.epoch) == ("not_finite", "train/loss/total", 200, 2)
    assert alert.message == f"train/loss/total is {bad}, and 1 more metrics are not finite."
    assert alert.tip == KINDS["not_finite"].tip
    assert series.add({"sys/speed/env_steps": bad}) == []
    assert series.watch.active == {"not_finite": 0.0}


def test_env_steps_that_stand_still_or_go_back():
    def alerts(*steps, collecting=True):
        series = Series()
        return [[alert.id for alert in series.add({}, env_steps=s, collecting=collecting)] for s in steps]

    assert alerts(10, 20, 30) == [[], [], []]
    assert alerts(10, 20, 20, 20) == [[], [], ["step_not_increasing"], []]
    assert alerts(10, 10, 10, collecting=False) == [[], [], []]
    assert alerts(10, 5, collecting=False) == [[], ["step_not_increasing"]]


def test_bounds_are_held_against_the_mean_of_five_points():
    name = "train/opt/replay/effective_sample_share"  # min 0, max 1
    assert fired(name, [1.5, 1.5, 1.5, 1.5]) == []
    assert fired(name, [1.5] * 5) == [(5, "out_of_bounds")]
    # A single spike of 2.9 makes the mean of five 1.0: inside. One of 3 makes it 1.02.
    assert fired(name, [0.525, 0.525, 0.525, 0.525, 2.9, 0.525]) == []
    assert fired(name, [0.525, 0.525, 0.525, 0.525, 3.0, 0.525]) == [(5, "out_of_bounds")]
    assert fired(name, [-0.1] * 9) == [(5, "out_of_bounds")]
    assert fired("somebody/elses/metric", [1e9] * 9) == []
    assert fired("sys/own", [math.nan] * 9) == []
    assert fired("train/alerts/kl_high", [1.0] * 9) == []


def test_the_message_has_the_figures():
    series = Series()
    alerts = [alert for _ in range(5) for alert in series.add({APPROX_KL: 0.08})]
    assert alerts[0].message == f"{APPROX_KL} is 0.08 (mean of 5 points), above 0.05."


@pytest.mark.parametrize(
    ("metric", "inside", "outside", "name", "first"),
    [
        (APPROX_KL, 0.049, 0.051, "kl_high", 5),
        (CLIP_FRACTION, 0.49, 0.51, "clip_fraction_high", 5),
        (DEAD_UNITS, 0.49, 0.51, "dead_units", 5),
        (APPROX_KL, 0.0011, 0.0009, "kl_low", 24),
        (CLIP_FRACTION, 0.051, 0.049, "clip_fraction_low", 24),
        (EXPLAINED_VARIANCE, -0.19, -0.21, "explained_variance_low", 24),
    ],
)
def test_ranges_with_an_id_of_their_own(metric, inside, outside, name, first):
    """A low KL, clip fraction or explained variance must last for 20 means of five: points 5 to 24."""
    assert fired(metric, [inside] * 60) == []
    assert fired(metric, [outside] * 60) == [(first, name)]


def test_a_slightly_negative_kl_is_no_alert():
    assert fired(APPROX_KL, [0.004, -0.0001, 0.003, 0.005, -0.0002] * 12) == []


def test_small_steps_are_not_told_when_the_schedule_made_them_small():
    def alerts(rates):
        series = Series()
        return [alert.id for rate in rates for alert in series.add({APPROX_KL: 1e-5, "train/policy_lr": rate})]

    assert alerts([1e-3] * 40) == ["kl_low"]
    assert alerts([1e-3] * 4 + [4e-4] * 40) == []


def test_what_a_done_task_explains_is_not_told():
    def alerts(value):
        series, row = Series(threshold=100), {APPROX_KL: 1e-6, EXPLAINED_VARIANCE: -5.0}
        found = []
        for epoch in range(60):
            found += series.add({RETURN: 0.0 if epoch == 0 else value, ENTROPY: 1.0 if epoch < 15 else 0.1, **row})
        return sorted({alert.id for alert in found})

    assert alerts(96.0) == []  # 95% of the way from 0 to 100 is 95
    assert alerts(90.0) == ["entropy_collapse", "explained_variance_low", "kl_low", "return_stalled"]


def test_entropy_below_a_quarter_of_its_start():
    # Start: (2 + 2.2 + 1.8) / 3 = 2; a quarter is 0.5.
    head = [2.0, 2.2, 1.8]
    assert fired(ENTROPY, [*head, *[0.51] * 20]) == []
    # Means of five at points 5 to 8: 1.4, 1.08, 0.72 (1.8 and four times 0.45), 0.45.
    assert fired(ENTROPY, [*head, *[0.45] * 20]) == [(8, "entropy_collapse")]


@pytest.mark.parametrize("values", [[-1.0] * 3 + [-9.0] * 20, [0.3] * 3 + [0.2, 0.1, -0.1] + [-0.5] * 20])
def test_the_entropy_of_continuous_actions_has_no_share(values):
    assert fired(ENTROPY, values) == []


def test_a_flat_return_is_told_once_after_five_windows():
    assert fired(RETURN, [-200.0] * 47, threshold=-110) == []
    assert fired(RETURN, [-200.0] * 300, threshold=-110) == [(48, "return_stalled")]
    assert fired(RETURN, [5.0] * 300) == [(48, "return_stalled")]


def test_a_return_at_its_ceiling_has_not_stalled():
    rising = [float(min(500, 20 + 10 * epoch)) for epoch in range(400)]
    assert fired(RETURN, rising, threshold=475) == []
    assert fired(RETURN, [min(300.0, value) for value in rising], threshold=475)[0][1] == "return_stalled"


def test_slow_progress_and_progress_of_evaluations_are_progress():
    assert fired(RETURN, [0.4 * epoch for epoch in range(200)], threshold=475) == []
    series, found = Series(threshold=1.0), []
    for epoch in range(200):
        row = {RETURN: 0.0} | ({episode_return("val"): epoch / 250} if epoch % 30 == 29 else {})
        found += series.add(row)
    assert found == []


def test_epochs_without_a_new_episode_do_not_count():
    series = Series(threshold=10)
    assert [alert for _ in range(200) for alert in series.add({RETURN: 1.0}, episodes=3)] == []


def test_a_declining_return():
    rise = [10.0 * epoch for epoch in range(40)]
    fall = [390 - 20.0 * step for step in range(1, 20)]
    (first, name), *others = fired(RETURN, rise + fall, threshold=475)
    # The best window is 340..390, 370, 350 with mean 363.75; a quarter of the way, 475 / 4 = 118.75, is lost at 245.
    # With 10 points of the fall the newest window's mean is 260, with 11 it is 240.
    assert (first, name, others) == (51, "return_declining", [])
    assert fired(RETURN, [*rise, *fall[:4], *[310.0] * 100], threshold=475)[:1] == [(80, "return_stalled")]


def test_noise_around_a_level_is_no_decline():
    assert fired(RETURN, [100.0 + 30 * math.sin(37 * epoch) for epoch in range(47)], threshold=None) == []


def test_silent_while_it_lasts_and_again_only_after_a_while_that_doubles():
    high, low = [0.2] * 5, [0.01] * 5
    series = Series()
    assert series.feed(APPROX_KL, high + high) == [(5, "kl_high")]
    # Means fall to 0.05 and below with the fourth of the low points and come back with the second high one.
    assert series.feed(APPROX_KL, [*low, *high]) == []
    assert series.feed(APPROX_KL, [0.01] * (REARM_EPOCHS + 5) + high) == [(47, "kl_high")]
    assert series.feed(APPROX_KL, [0.01] * (REARM_EPOCHS + 5) + high) == []
    assert series.feed(APPROX_KL, [0.01] * (2 * REARM_EPOCHS + 5) + high) == [(127, "kl_high")]
    (recap,) = series.watch.recaps.values()
    assert (recap.count, recap.first_env_steps, recap.first_epoch) == (3, 500, 5)
    assert (recap.last_env_steps, recap.last_epoch) == (100 * series.epoch, series.epoch)


def test_columns_are_one_while_it_holds_and_zero_after():
    series, columns = Series(), []
    for value in [0.01, 0.2, 0.2, 0.2, 0.2, *[0.01] * 6]:
        series.add({APPROX_KL: value})
        columns.append(dict(series.watch.active))
    assert columns == [{}] * 4 + [{"kl_high": 1.0}] * 4 + [{"kl_high": 0.0}] * 3
    (recap,) = series.watch.recaps.values()
    assert (recap.epochs, recap.first_epoch, recap.last_epoch) == (4, 5, 8)


def test_a_metric_that_is_not_in_every_row_stays_as_it_was_judged():
    series = Series()
    for epoch in range(50):
        series.add({DEAD_UNITS: 0.9} if epoch % 10 == 0 else {})
    assert series.watch.active == {"dead_units": 1.0}
    assert next(iter(series.watch.recaps.values())).epochs == 10


@pytest.mark.parametrize("cut", [1, 7, 30, 55, 90])
def test_a_watch_that_was_saved_goes_on_the_same(cut):
    rows = [
        {
            RETURN: 5.0 + epoch % 3,
            APPROX_KL: 0.2 if epoch % 40 < 8 else 0.0005,
            ENTROPY: 1.0 / (1 + epoch),
            "train/policy_lr": 1e-3,
            "train/loss/total": math.nan if epoch == 60 else 1.0,
        }
        for epoch in range(120)
    ]
    whole, before = Series(100.0), Series(100.0)
    expected = [whole.add(row) for row in rows]
    found = [before.add(row) for row in rows[:cut]]
    after = Series(100.0)
    after.epoch = cut
    after.watch.set_state(json.loads(json.dumps(before.watch.get_state(), allow_nan=False)))
    found += [after.add(row) for row in rows[cut:]]
    assert found == expected
    assert {alert.id for alerts in found for alert in alerts} == {
        "kl_high", "kl_low", "entropy_collapse", "not_finite", "return_stalled",
    }  # fmt: skip
    assert after.watch.get_state() == whole.watch.get_state()
    assert ENV_STEPS not in after.watch.get_state()["rules"]["Bounds"]["points"]
