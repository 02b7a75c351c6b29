"""Whole episodes are seen while somebody else steps the environment, whatever its autoreset mode."""

import numpy as np
import pytest

from gymlab.api import resolve
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.episode_tap import EpisodeTap
from gymlab.envs.step import Episode, Step


class Counting:
    """Two environments with episodes of 2 and 3 steps; an observation is environment, episode and place."""

    num_envs = 2
    lengths = (2, 3)

    def __init__(self, *, next_step=False, broken=False, lives=False):
        self.next_step, self.broken, self.lives = next_step, broken, lives
        self.seen = np.zeros((2, 3), np.int64)

    def reset(self):
        self.seen = np.array([[0, 0, 0], [1, 0, 0]])
        self.dead = np.zeros(2, bool)
        return self.seen.copy()

    def step(self, actions):
        valid = ~self.dead
        ended = np.zeros(2, bool)
        final, episodes = np.zeros((2, 3), np.int64), []
        for index, length in enumerate(self.lengths):
            if not valid[index]:
                self.seen[index, 1:] = self.seen[index, 1] + 1, 0
                continue
            self.seen[index, 2] += 1
            if self.seen[index, 2] == length:
                ended[index] = True
                final[index] = self.seen[index]
                episodes.append(Episode(index, 0, float(length), 0.0, length, True, broken=self.broken))
                if not self.next_step:
                    self.seen[index, 1:] = self.seen[index, 1] + 1, 0
        terminated = ended.copy()
        terminated[1] |= self.lives
        self.dead = ended & self.next_step
        step = Step(self.seen.copy(), np.ones(2, np.float32), terminated, np.zeros(2, bool))
        step.final_observation, step.episodes = (final if ended.any() else None), episodes
        step.valid = valid if self.next_step else None
        return step

    def step_async(self, actions, half):
        pass


def lived_in(environment, steps, **options):
    found = []
    tap = EpisodeTap(environment, lambda lived, ended: found.append((lived, ended)), **options)
    environment.reset()
    actions = np.zeros(2, np.int64)
    for at in range(steps):
        # The same array each time, as a collector may do.
        actions[:] = (at, -at)
        environment.step(actions)
    return tap, found


@pytest.mark.parametrize("next_step", [False, True])
def test_episodes_are_whole(next_step):
    _, found = lived_in(Counting(next_step=next_step), 8)
    by_env = [[lived for lived, ended in found if ended.env_index == index] for index in range(2)]
    # With next-step autoreset an episode takes a step more.
    assert [len(episodes) for episodes in by_env] == ([3, 2] if next_step else [4, 2])
    for index, episodes in enumerate(by_env):
        for number, lived in enumerate(episodes):
            length = Counting.lengths[index]
            assert [tuple(o) for o in lived.observations] == [(index, number, at) for at in range(length + 1)]
            first = number * (length + next_step)
            assert [int(a) for a in lived.actions] == [(1, -1)[index] * (first + at) for at in range(length)]
            assert lived.rewards == [1.0] * length


def test_a_lost_life_ends_nothing_and_a_broken_episode_is_passed_over():
    _, found = lived_in(Counting(lives=True), 3)
    assert [len(lived.actions) for lived, _ in found] == [2, 3]
    tap, found = lived_in(Counting(broken=True), 8)
    assert found == []
    assert all(lived is not None for lived in tap.open)


def test_what_began_before_or_went_by_halves_is_passed_over():
    environment, found = Counting(), []
    environment.reset()
    environment.step(np.zeros(2))
    EpisodeTap(environment, lambda lived, ended: found.append(lived))
    environment.step(np.zeros(2))
    assert found == []
    environment.step(np.zeros(2))
    environment.step_async(np.zeros(1), 0)
    environment.step(np.zeros(2))
    assert found == []
    for _ in range(2):
        environment.step(np.zeros(2))
    assert len(found) == 1


def test_the_longest_is_given_up_when_memory_runs_out():
    # An observation takes 24 bytes: there is room for three, and the episodes of environment 1 have four.
    tap, found = lived_in(Counting(), 12, memory=3 * 24)
    assert {ended.env_index for _, ended in found} == {0}
    assert tap._bytes <= 3 * 24
    assert tap._bytes == sum(o.nbytes for lived in tap.open if lived is not None for o in lived.observations)


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_real_environments_tell_the_same_as_they_lived(mode):
    config = resolve("CartPole-v1:ppo", vectorization_mode=mode, max_episode_steps=15).config
    found = []
    with make_vector(config, 3, SeedTree(0), purpose="train") as environment:
        EpisodeTap(environment, lambda lived, ended: found.append((lived, ended)))
        environment.reset()
        generator = np.random.default_rng(0)
        for _ in range(60):
            environment.step(generator.integers(2, size=3))
    assert len(found) > 6
    for lived, ended in found:
        assert len(lived.actions) == len(lived.rewards) == ended.length == len(lived.observations) - 1
        assert sum(lived.rewards) == ended.env_return
        angles = np.stack(lived.observations)[:, 2]
        assert (np.abs(angles[:-1]) < 0.2095).all()
        assert ended.terminated == (abs(angles[-1]) > 0.2094)
