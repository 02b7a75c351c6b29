"""When things around the loop happen."""

import pytest

from gymlab.engine.callbacks.early_stop import EarlyStop
from gymlab.engine.callbacks.evaluation import Evaluation
from gymlab.engine.statistics import EpisodeStatistics
from gymlab.envs.step import Episode


def episode(value, shaped=None):
    return Episode(0, 0, value, value if shaped is None else shaped, 10, True)


@pytest.mark.parametrize(
    ("warmup", "every", "expected"),
    [(50, 15, [60, 75, 90]), (0, 30, [30, 60, 90]), (60, 30, [90]), (3, 1, list(range(4, 101)))],
)
def test_evaluation_falls_on_multiples_after_the_warm_up(warmup, every, expected):
    callback = Evaluation(every, warmup)
    assert [epoch for epoch in range(1, 101) if callback.is_due(epoch)][: len(expected)] == expected


def test_broken_episodes_say_nothing_about_the_agent():
    statistics = EpisodeStatistics()
    statistics.update([episode(3.0), episode(900.0)._replace(broken=True), episode(5.0)])
    assert statistics.metrics() == {"ep_rew/mean": 4.0, "ep_rew/last": 5.0, "ep_len/mean": 10.0, "ep_rew/best": 5.0}


class Loop:
    def __init__(self, episodes=()):
        self.statistics = EpisodeStatistics()
        self.statistics.update(episodes)
        self.reason = None

    def request_stop(self, reason):
        self.reason = reason


def stopped_by(callback, row, episodes=()):
    loop = Loop(episodes)
    callback.on_row(loop, row)
    return loop.reason


def test_negative_and_integer_thresholds_stop():
    callback = EarlyStop(on_eval=-100, on_train=None)
    assert stopped_by(callback, {"val/roll/ep_rew/mean": -101.0}) is None
    assert "reached -100" in stopped_by(callback, {"val/roll/ep_rew/mean": -99.5})


def test_a_threshold_of_zero_counts():
    assert stopped_by(EarlyStop(on_eval=0.0, on_train=None), {"val/roll/ep_rew/mean": 0.0})


def test_the_training_mean_counts_only_over_a_full_window():
    callback = EarlyStop(on_eval=None, on_train=5)
    row = {"train/roll/ep_rew/mean": 6.0}
    assert stopped_by(callback, row, [episode(6.0)] * 99) is None
    assert stopped_by(callback, row, [episode(6.0)] * 100)


def test_solved_is_judged_on_the_environments_own_reward():
    statistics = EpisodeStatistics()
    statistics.update([episode(1.0, shaped=100.0), episode(3.0, shaped=100.0)])
    metrics = statistics.metrics()
    assert metrics["ep_rew/mean"] == 2.0
    assert metrics["ep_shaped_rew/mean"] == 100.0
    assert metrics["ep_rew/last"] == 3.0


def test_statistics_resume():
    statistics = EpisodeStatistics()
    statistics.update([episode(float(value)) for value in range(150)])
    other = EpisodeStatistics()
    other.set_state(statistics.get_state())
    assert other.metrics() == statistics.metrics()
    assert other.window_full


def test_the_success_rate_is_over_the_newest_thousand_episodes():
    statistics = EpisodeStatistics()
    statistics.update([episode(1.0)._replace(success=False)] * 500 + [episode(1.0)._replace(success=True)] * 900)
    assert statistics.metrics()["success/mean"] == 0.9
