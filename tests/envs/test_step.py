import numpy as np

from gymlab.envs.step import Episode, Step


def make(terminated, truncated, valid=None) -> Step:
    count = len(terminated)
    return Step(np.zeros((count, 1)), np.zeros(count), np.array(terminated), np.array(truncated), valid=valid)


def test_an_episode_ends_by_either_flag():
    np.testing.assert_array_equal(make([True, False, False], [False, True, False]).ended, [True, True, False])


def test_first_observations_follow_an_end_or_in_next_step_mode_a_dead_row():
    np.testing.assert_array_equal(make([True, False], [False, False]).is_first, [True, False])
    step = make([True, False], [False, False], valid=np.array([True, False]))
    np.testing.assert_array_equal(step.is_first, [False, True])


def test_steps_do_not_share_their_lists():
    one, other = make([False], [False]), make([False], [False])
    one.episodes.append(Episode(0, 0, 1.0, 1.0, 1, True))
    one.info["key"] = 1
    assert other.episodes == []
    assert other.info == {}
