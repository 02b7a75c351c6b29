"""All three autoreset modes, and ale-py's own, give the same valid rows (pitfalls A1, A2, A4, A6)."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from counting_env import LENGTHS, Counting, expected_transitions, step_often
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from gymlab.engine.seeding import SeedTree
from gymlab.envs.adapter import GymnasiumVector
from gymlab.envs.restarts import Restarts
from gymlab.envs.subenv import EpisodeRecorder, SubEnv
from gymlab.envs.sync import SyncVector
from gymlab.envs.vector import EnvironmentSpec, VectorEnv
from gymlab.errors import EnvironmentFailure, NonFiniteError

SPEC = EnvironmentSpec("Counting-v0")
SHIFTS = (0, 1, 3)


class AlePyStyle(SyncVectorEnv):
    """ale-py's SAME_STEP: `final_obs` is one array for all environments, without mask and without `final_info`."""

    def step(self, actions):
        observation, reward, terminated, truncated, infos = super().step(actions)
        if "final_obs" in infos:
            ended = terminated | truncated
            final = np.full_like(observation, -1.0)
            final[ended] = np.stack(list(infos["final_obs"][ended]))
            infos = {"final_obs": final}
        return observation, reward, terminated, truncated, infos


def adapted(mode: AutoresetMode, seeds, vector_class=SyncVectorEnv, **options) -> GymnasiumVector:
    factories = [lambda shift=shift: Counting(shift, **options) for shift in SHIFTS]
    return GymnasiumVector(vector_class(factories, autoreset_mode=mode), SPEC, seeds)


def make(kind: str, seeds, **options) -> VectorEnv:
    if kind == "ale-py":
        return adapted(AutoresetMode.SAME_STEP, seeds, AlePyStyle, **options)
    if kind == "sync":

        def make_one(index: int) -> SubEnv:
            env = EpisodeRecorder(Counting(SHIFTS[index], **options), None)
            return SubEnv(env, env, seeds=seeds, purpose="train", env_index=index)

        return SyncVector([partial(make_one, index) for index in range(len(SHIFTS))], SPEC, "train", Restarts())
    return adapted(AutoresetMode[kind], seeds, **options)


KINDS = ["NEXT_STEP", "SAME_STEP", "DISABLED", "ale-py", "sync"]


def collect(vector: VectorEnv, steps: int):
    """Valid transitions of each environment, and its finished episodes."""
    rows = [[] for _ in SHIFTS]
    episodes = [[] for _ in SHIFTS]
    observation = vector.reset().copy()
    for number in range(steps):
        actions = np.full(len(SHIFTS), number % 3)
        step = vector.step(actions)
        for index in range(len(SHIFTS)):
            if step.valid is not None and not step.valid[index]:
                assert step.reward[index] == 0
                assert not step.terminated[index]
                assert not step.truncated[index]
                continue
            ended = bool(step.terminated[index] or step.truncated[index])
            final = float(step.final_observation[index, 0]) if ended else None
            rows[index].append(
                (
                    float(observation[index, 0]),
                    float(step.reward[index]),
                    bool(step.terminated[index]),
                    bool(step.truncated[index]),
                    final,
                )
            )
        for episode in step.episodes:
            episodes[episode.env_index].append(episode)
        observation = step.observation.copy()
    return rows, episodes


@pytest.mark.parametrize("kind", KINDS)
def test_valid_rows_are_those_of_the_environment(kind, seeds):
    rows, _ = collect(make(kind, seeds), 60)
    for shift, seen in zip(SHIFTS, rows, strict=True):
        assert seen == expected_transitions(shift, len(seen))


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    kinds=st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
def test_a4_random_endings_give_the_same_rows_in_every_mode(lengths, kinds):
    for kind in KINDS:
        rows, _ = collect(make(kind, SeedTree(0), lengths=lengths, kinds=kinds), 20)
        for shift, seen in zip(SHIFTS, rows, strict=True):
            assert seen == expected_transitions(shift, len(seen), lengths, kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_saved_before_the_first_reset_changes_nothing(kind, seeds):
    vector = make(kind, seeds)
    vector.set_state(make(kind, seeds).get_state())
    rows, _ = collect(vector, 10)
    assert rows[0] == expected_transitions(0, len(rows[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_have_the_sum_of_their_own_rewards(kind, seeds):
    vector = make(kind, seeds)
    _, episodes = collect(vector, 40)
    for shift, seen in zip(SHIFTS, episodes, strict=True):
        assert len(seen) >= 8
        for number, episode in enumerate(seen):
            length = LENGTHS[(number + shift) % len(LENGTHS)]
            assert episode.episode_index == number
            assert episode.length == length
            assert episode.env_return == episode.shaped_return == length * (length + 1) / 2
            assert episode.terminated == (number % 3 != 1)
    np.testing.assert_array_equal(vector.episode_counts, [len(seen) for seen in episodes])


@pytest.mark.parametrize(("kind", "dead"), [("NEXT_STEP", True), ("SAME_STEP", False), ("DISABLED", False)])
def test_only_next_step_has_dead_rows_and_no_final_observation_is_given_without_an_end(kind, dead, seeds):
    vector = make(kind, seeds)
    vector.reset()
    invalid = 0
    for _ in range(20):
        step = vector.step(np.zeros(3, dtype=int))
        assert (step.final_observation is not None) == bool(step.ended.any())
        invalid += 0 if step.valid is None else int((~step.valid).sum())
    assert (invalid > 0) == dead


@pytest.mark.parametrize("kind", KINDS)
def test_is_first_marks_first_observations(kind, seeds):
    vector = make(kind, seeds)
    vector.reset()
    for _ in range(30):
        step = vector.step(np.zeros(3, dtype=int))
        np.testing.assert_array_equal(step.is_first, step.observation[:, 0] % 100 == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_info_is_that_of_the_transition(kind, seeds):
    vector = make(kind, seeds)
    vector.reset()
    for number in range(12):
        step = vector.step(np.full(3, number % 3))
        if kind == "ale-py" and step.ended.any():
            continue
        told = [value for value, valid in zip(step.info["action"], valid_of(step), strict=True) if valid]
        assert told == [number % 3] * len(told)


def valid_of(step):
    return np.ones(len(step.reward), dtype=bool) if step.valid is None else step.valid


def test_last_arrays_survive_one_more_step(seeds):
    vector = make("SAME_STEP", seeds)
    vector.reset()
    first = vector.step(np.zeros(3, dtype=int))
    kept = (first.observation.copy(), first.reward.copy())
    vector.step(np.zeros(3, dtype=int))
    np.testing.assert_array_equal(first.observation, kept[0])
    np.testing.assert_array_equal(first.reward, kept[1])


def test_d1_initial_seeds_are_those_of_the_tree(seeds):
    vector = adapted(AutoresetMode.DISABLED, seeds)
    collect(vector, 30)
    used = [seed for env in vector._vector.envs for seed in env.seeds]
    assert None not in used
    assert len(set(used)) == len(used)
    assert vector._vector.envs[1].seeds[:2] == [seeds.child("train", 1, episode).integer() for episode in (0, 1)]


def test_a_vector_env_that_resets_silently_is_refused(seeds):
    class Silent(SyncVectorEnv):
        def step(self, actions):
            *rest, _ = super().step(actions)
            return (*rest, {})

    vector = adapted(AutoresetMode.SAME_STEP, seeds, Silent)
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="final_obs"):
        step_often(vector, 5)


def test_a_vector_env_without_a_mode_is_refused(seeds):
    vector = SyncVectorEnv([Counting])
    vector.metadata = {}
    with pytest.raises(EnvironmentFailure, match="autoreset_mode"):
        GymnasiumVector(vector, SPEC, seeds)


def test_gymnasiums_own_cartpole_vector_is_not_resumable_but_goes_on(seeds):
    native = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    vector = GymnasiumVector(native, EnvironmentSpec("CartPole-v1"), seeds)
    vector.reset()
    while vector.episode_counts.sum() < 3:
        vector.step(np.ones(2, dtype=int))
    assert not vector.resumable
    assert "CartPoleVectorEnv" in vector.resume_note
    state = vector.get_state()
    other = GymnasiumVector(
        gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"), EnvironmentSpec("CartPole-v1"), seeds
    )
    other.set_state(state)
    np.testing.assert_array_equal(other.episode_counts, vector.episode_counts)
    assert not np.array_equal(other.observation, vector.observation)


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_dict_observations_are_flattened_in_every_mode(kind, seeds):
    class Pair(Counting):
        def __init__(self):
            super().__init__()
            box = self.observation_space
            self.observation_space = gym.spaces.Dict({"b": box, "a": gym.spaces.Discrete(2)})

        def _observation(self):
            return {"a": self.count % 2, "b": np.array([100.0 * self.episode + self.count])}

    vector = GymnasiumVector(SyncVectorEnv([Pair, Pair], autoreset_mode=AutoresetMode[kind]), SPEC, seeds)
    assert vector.observation_space.shape == (3,)
    np.testing.assert_array_equal(vector.reset(), [[1, 0, 0]] * 2)
    vector.step(np.zeros(2, dtype=int))
    step = vector.step(np.zeros(2, dtype=int))
    np.testing.assert_array_equal(step.observation, [[1, 0, 2]] * 2)
    step = vector.step(np.zeros(2, dtype=int))
    np.testing.assert_array_equal(step.final_observation, [[0, 1, 3]] * 2)


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_non_finite_reward_is_named(kind, seeds):
    class Broken(Counting):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, np.nan if self.episode == 1 else reward, *rest

    vector = GymnasiumVector(SyncVectorEnv([Counting, Broken], autoreset_mode=AutoresetMode[kind]), SPEC, seeds)
    vector.reset()
    with pytest.raises(NonFiniteError, match=r"Counting-v0 returned a reward .*environment 1, episode 1, step 1"):
        step_often(vector, 6)
