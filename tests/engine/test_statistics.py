"""What is kept of training episodes."""

import pytest

from gymlab.engine.statistics import EpisodeStatistics
from gymlab.envs.step import Episode


def episode(told=None, broken=False, env_return=1.0):
    return Episode(0, 0, env_return, 1.0, 10, True, None, broken, told)


def test_what_environments_tell_is_a_mean_over_the_window():
    statistics = EpisodeStatistics(window=2)
    statistics.update([episode({"kills": kills}) for kills in (5.0, 1.0, 2.0)])
    assert statistics.metrics()["kills/mean"] == 1.5
    assert "achievement_score" not in statistics.metrics()


def test_the_score_of_achievements_is_over_all_whole_episodes():
    statistics = EpisodeStatistics(window=1)
    wood, diamond = "achievement/wood", "achievement/diamond"
    statistics.update([episode({wood: 1.0, diamond: 0.0}), episode({wood: 1.0, diamond: 0.0}, broken=True)])
    statistics.update([episode({wood: 0.0, diamond: 0.0})])
    metrics = statistics.metrics()
    assert metrics[f"{wood}/mean"] == 0.0
    # 50% and 0%: exp((ln 51 + ln 1) / 2) - 1.
    assert metrics["achievement_score"] == pytest.approx(51**0.5 - 1)


def test_the_state_goes_on_and_one_without_such_numbers_is_understood():
    first = EpisodeStatistics(window=2)
    first.update([episode({"achievement/wood": 1.0}), episode({"achievement/wood": 0.0})])
    second = EpisodeStatistics(window=2)
    second.set_state(first.get_state())
    for statistics in (first, second):
        statistics.update([episode({"achievement/wood": 0.0})])
    assert second.metrics() == first.metrics()
    assert second.metrics()["achievement/wood/mean"] == 0.0
    old = {
        name: value for name, value in first.get_state().items() if name not in ("told", "unlocked", "told_episodes")
    }
    EpisodeStatistics(window=2).set_state(old)


def test_an_epoch_tells_of_the_episodes_that_ended_in_it():
    statistics = EpisodeStatistics(window=1)
    statistics.update([episode({}, env_return=value) for value in (1.0, 2.0, 6.0)])
    going_on = EpisodeStatistics(window=1)
    going_on.set_state(statistics.get_state())
    for told in (statistics, going_on):
        # Deviations of -2, -1 and 3 from the mean.
        expected = {
            "episodes": 3,
            "ep_rew/mean": 3.0,
            "ep_rew/std": (14 / 3) ** 0.5,
            "ep_rew/min": 1.0,
            "ep_rew/max": 6.0,
        }
        assert told.of_epoch() == pytest.approx(expected)
        told.end_epoch()
        assert told.of_epoch() == {"episodes": 0}
