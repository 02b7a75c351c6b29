"""Native FrozenLake, Taxi and CliffWalking follow the transition tables of Gymnasium's own."""

import numpy as np
import pytest
from twins import assert_continues, assert_drawn_by_gymnasium, native, own, run

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.families.tabular import NEVER, TransitionTable
from gymlab.errors import ConfigError, EnvironmentFailure

ROOM = ["SFFH", "FHFF", "SFFG"]
KINDS = {
    "lake": ("FrozenLake-v1", {}),
    "large lake": ("FrozenLake8x8-v1", {}),
    "dry lake": ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}),
    "own lake": ("FrozenLake-v1", {"desc": ROOM, "success_rate": 0.7, "reward_schedule": (5, -2, -0.25)}),
    "cliff": ("CliffWalking-v1", {}),
    "slippery cliff": ("CliffWalkingSlippery-v1", {}),
    "slippery by argument": ("CliffWalking-v1", {"is_slippery": True}),
    "taxi": ("Taxi-v4", {}),
    "rainy taxi": ("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.6}),
}


def pose(env, arrays, index):
    env.s = int(arrays["state"][index])
    env.lastaction = int(arrays["action"][index])


def place(vector, states):
    """Put all environments into given states."""
    state = vector.get_state()
    state["arrays"]["state"][:] = states
    vector.set_state(state)


def test_the_table_by_hand():
    """Two states, two actions, at most three outcomes: (probability, next state, reward, terminated)."""
    table = TransitionTable(
        {
            0: {0: [(1.0, 1, -1, False)], 1: [(0.25, 0, 0, False), (0.5, 1, 2, True), (0.25, 0, 3, False)]},
            1: {0: [(0.5, 0, 0, False), (0.5, 1, 7, True)], 1: [(1.0, 1, 0, True)]},
        }
    )
    assert (table.actions, table.width) == (2, 3)
    assert table.next_state.tolist() == [1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0]
    assert table.reward.tolist() == [-1, 0, 0, 0, 2, 3, 0, 7, 0, 0, 0, 0]
    assert np.flatnonzero(table.terminated).tolist() == [4, 7, 9]
    assert table.probability.tolist() == [1, 0, 0, 0.25, 0.5, 0.25, 0.5, 0.5, 0, 1, 0, 0]
    assert table.bounds.tolist() == [[NEVER, 0.25, 0.5, NEVER], [NEVER, 0.75, NEVER, NEVER]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_an_outcome_of_gymnasiums_table(config, kind):
    """Thousands of random steps: next state, reward, end and probability stand together in `P`."""
    env_id, env_kwargs = KINDS[kind]
    vector = native(config, env_id, count=8, env_kwargs=env_kwargs)
    env = own(env_id, **env_kwargs).unwrapped
    assert vector.observation_space == env.observation_space
    assert vector.action_space == env.action_space
    state = vector.reset().copy()
    generator = np.random.default_rng(0)
    returns = np.zeros(8)
    for _ in range(400):
        actions = generator.integers(0, env.action_space.n, 8)
        step = vector.step(actions)
        reached = np.where(step.ended, step.final_observation, step.observation) if step.episodes else step.observation
        returns += step.reward
        for index in range(8):
            outcome = (step.info["prob"][index], reached[index], step.reward[index], step.terminated[index])
            rounded = [
                (chance, state_, np.float32(reward), end)
                for chance, state_, reward, end in env.P[state[index]][actions[index]]
            ]
            assert outcome in rounded
        for episode in step.episodes:
            assert episode.env_return == returns[episode.env_index]
            assert episode.success is None
            assert env.initial_state_distrib[step.observation[episode.env_index]] > 0
            returns[episode.env_index] = 0.0
        state = step.observation.copy()
    assert state.dtype == np.int64


@pytest.mark.parametrize("kind", ["dry lake", "cliff", "taxi"])
def test_deterministic_ones_equal_gymnasium_in_every_state_and_action(config, kind):
    env_id, env_kwargs = KINDS[kind]
    env = own(env_id, **env_kwargs)
    states, actions = map(np.ravel, np.indices((env.observation_space.n, env.action_space.n)))
    vector = native(config, env_id, count=len(states), env_kwargs=env_kwargs)
    vector.reset()
    place(vector, states)
    step = vector.step(actions)
    for index, (state, action) in enumerate(zip(states.tolist(), actions.tolist(), strict=True)):
        env.unwrapped.s = state
        observation, reward, terminated, _, info = env.step(action)
        reached = step.final_observation[index] if step.ended[index] else step.observation[index]
        assert (reached, step.reward[index], step.terminated[index]) == (observation, reward, terminated)
        assert step.info["prob"][index] == info["prob"]
        if "action_mask" in info and not terminated:
            np.testing.assert_array_equal(step.action_mask[index], info["action_mask"])


@pytest.mark.parametrize("kind", ["lake", "own lake", "slippery cliff", "rainy taxi"])
def test_outcomes_come_as_often_as_the_table_says(config, kind):
    env_id, env_kwargs = KINDS[kind]
    env = own(env_id, **env_kwargs).unwrapped
    count = 20_000
    vector = native(config, env_id, count=count, env_kwargs=env_kwargs)
    vector.reset()
    # A few pairs with several outcomes, some of which may lead to the same state.
    stochastic = [(state, action) for state, row in env.P.items() for action in row if len(row[action]) > 1]
    for state, action in stochastic[:: max(1, len(stochastic) // 6)]:
        place(vector, state)
        step = vector.step(np.full(count, action))
        reached = np.where(step.ended, step.final_observation, step.observation) if step.episodes else step.observation
        expected: dict[int, float] = {}
        for chance, following, _, _ in env.P[state][action]:
            expected[int(following)] = expected.get(int(following), 0.0) + chance
        for following, chance in expected.items():
            # Four and a half standard errors.
            error = 4.5 * (chance * (1 - chance) / count) ** 0.5
            assert (reached == following).mean() == pytest.approx(chance, abs=error + 1e-9)


@pytest.mark.parametrize("kind", ["lake", "own lake", "cliff", "taxi"])
def test_first_states_are_drawn_from_gymnasiums_distribution(config, kind):
    env_id, env_kwargs = KINDS[kind]
    expected = own(env_id, **env_kwargs).unwrapped.initial_state_distrib
    first = native(config, env_id, count=30_000, env_kwargs=env_kwargs).reset()
    shares = np.bincount(first, minlength=len(expected)) / 30_000
    assert (shares[expected == 0] == 0).all()
    assert (np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / 30_000)).all()


def test_masks_are_taxis_own_for_the_state_to_act_on(config):
    vector = native(config, "Taxi-v4", count=16, max_episode_steps=9)
    env = own("Taxi-v4").unwrapped
    observation = vector.reset()
    kept, generator = [], np.random.default_rng(0)
    for _ in range(60):
        expected = np.array([env.action_mask(state) for state in observation], dtype=bool)
        np.testing.assert_array_equal(vector.action_mask, expected)
        kept.append((vector.action_mask, expected))
        step = vector.step(generator.integers(0, 6, 16))
        assert step.action_mask is vector.action_mask
        observation = step.observation
    for mask, expected in kept:
        np.testing.assert_array_equal(mask, expected)
    assert native(config, "CliffWalking-v1").step(np.zeros(4, dtype=int)).action_mask is None


@pytest.mark.parametrize(
    ("env_id", "limit", "threshold"),
    [
        ("FrozenLake-v1", 100, 0.7),
        ("FrozenLake8x8-v1", 200, 0.85),
        ("Taxi-v4", 200, 8),
        ("CliffWalking-v1", None, None),
    ],
)
def test_registered_time_limits(config, env_id, limit, threshold):
    vector = native(config, env_id, env_kwargs={"is_slippery": False} if "Lake" in env_id else {})
    assert (vector.get_max_episode_steps(), vector.get_return_threshold()) == (limit, threshold)
    vector.reset()
    # To the left or up from the start nothing ends.
    for count in range(1, (limit or 250) + 1):
        step = vector.step(np.full(4, 1 if env_id == "Taxi-v4" else 0))
        assert step.truncated.all() == (count == limit)
    assert [episode.length for episode in step.episodes] == [limit] * (4 if limit else 0)


@pytest.mark.parametrize("kind", ["lake", "taxi", "slippery cliff"])
def test_state_continues_bit_for_bit_and_seeds_repeat(config, kind):
    env_id, env_kwargs = KINDS[kind]
    assert_continues(config, env_id, env_kwargs=env_kwargs, max_episode_steps=30)


@pytest.mark.parametrize("kind", ["own lake", "cliff", "taxi"])
def test_drawn_by_gymnasium(config, kind):
    env_id, env_kwargs = KINDS[kind]
    assert_drawn_by_gymnasium(config, env_id, pose, **env_kwargs)


def test_the_same_actions_earn_the_same_on_native_and_sub_environments(config):
    returns = []
    for backend in ("native", "sync"):
        vector = make_vector(config("CliffWalking-v1", max_episode_steps=30), 3, SeedTree(0), backend=backend)
        vector.reset()
        episodes = [episode for row in run(vector, 90, seed=2) for episode in row[2]]
        returns.append([(episode.env_index, episode.env_return, episode.length) for episode in episodes])
    assert returns[0] == returns[1]
    assert len(returns[0]) >= 9


@pytest.mark.parametrize(
    ("env_id", "env_kwargs", "reason"),
    [
        ("Taxi-v4", {"fickle_passenger": True}, "fickle_passenger"),
        ("FrozenLake-v1", {"map_name": None}, "draws a map of its own"),
        ("CliffWalking-v1", {"is_rainy": True}, "is_rainy"),
    ],
)
def test_what_the_table_does_not_hold_is_left_to_sub_environments(config, env_id, env_kwargs, reason):
    with pytest.raises(ConfigError, match=reason):
        make_vector(config(env_id, env_kwargs=env_kwargs), 2, SeedTree(0), backend="native")
    if env_id != "CliffWalking-v1":
        with make_vector(config(env_id, env_kwargs=env_kwargs), 2, SeedTree(0)) as vector:
            assert vector.backend == "sync"


def test_wrong_actions_are_named(config):
    vector = native(config, "Taxi-v4", count=2)
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="actions 0 to 5"):
        vector.step(np.array([0, 6]))
