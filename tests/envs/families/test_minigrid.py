"""MiniGrid as symbols and as pictures."""

import numpy as np
import pytest

from gymlab.envs import make_env, make_vector
from gymlab.envs.families.minigrid import CELL, COLOURS, OBJECTS, MissionCode
from gymlab.errors import ConfigError, EnvironmentFailure

pytest.importorskip("minigrid")
WALL, GOAL, AGENT, GREY, GREEN, RED = 2, 8, 10, 5, 1, 0
FORWARD, RIGHT, PICK_UP = 2, 1, 3


def cell(observation, index):
    return observation[index * CELL : (index + 1) * CELL]


def hot(kind, colour, state):
    expected = np.zeros(CELL)
    expected[[kind, OBJECTS + colour, OBJECTS + COLOURS + state]] = 1
    return expected


def test_the_whole_grid_is_a_one_hot_of_each_cell_then_direction_and_load(config):
    env = make_env(config("MiniGrid-Empty-5x5-v0", env_kwargs={"view": "full"}))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (25 * CELL + 4 + OBJECTS + COLOURS,)
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(cell(observation, 0), hot(WALL, GREY, 0))
    np.testing.assert_array_equal(cell(observation, 5 + 1), hot(AGENT, RED, 0))
    np.testing.assert_array_equal(cell(observation, 3 * 5 + 3), hot(GOAL, GREEN, 0))
    np.testing.assert_array_equal(observation[25 * CELL :], [1, 0, 0, 0, *[0] * (OBJECTS + COLOURS)])


def test_the_partial_view_has_three_ones_a_cell_and_one_for_the_direction(config):
    env = make_env(config("MiniGrid-Empty-8x8-v0"))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (49 * CELL + 4,)
    assert observation.sum() == 49 * 3 + 1
    turned = env.step(RIGHT)[0]
    np.testing.assert_array_equal(turned[-4:], [0, 1, 0, 0])


def test_what_is_carried_shows_in_the_whole_grid(config):
    env = make_env(config("MiniGrid-DoorKey-5x5-v0", env_kwargs={"view": "full"}))
    env.reset(seed=0)
    world = env.unwrapped
    key = next(thing for thing in world.grid.grid if thing is not None and thing.type == "key")
    world.carrying = key
    load = env.step(RIGHT)[0][25 * CELL + 4 :]
    assert load.sum() == 2
    assert load[5] == 1  # A key.


def test_success_is_an_ending_with_a_reward(config, seeds):
    with make_vector(config("MiniGrid-Empty-5x5-v0"), 1, seeds, backend="sync") as vector:
        vector.reset()
        for action in (FORWARD, FORWARD, RIGHT, FORWARD):
            assert vector.step(np.array([action])).episodes == []
        (episode,) = vector.step(np.array([FORWARD])).episodes
    assert episode.success
    assert episode.terminated
    assert episode.env_return == pytest.approx(1 - 0.9 * 5 / 100)


def test_the_limit_of_the_world_is_a_truncation_and_no_success(config, seeds):
    with make_vector(config("MiniGrid-Empty-5x5-v0", env_kwargs={"max_steps": 2}), 1, seeds, backend="sync") as vector:
        vector.reset()
        vector.step(np.array([RIGHT]))
        step = vector.step(np.array([RIGHT]))
    assert step.truncated[0]
    assert step.episodes[0].success is False


def test_words_of_the_mission_are_one_hots():
    from minigrid.core.mission import MissionSpace

    code = MissionCode(
        MissionSpace(lambda colour, thing: f"get the {colour} {thing}", [["red", "blue"], ["key", "ball", "box"]])
    )
    out = np.zeros(code.width)
    code.write("get the blue box", out)
    np.testing.assert_array_equal(out, [0, 1, 0, 0, 1])


def test_missions_that_change_are_seen(config):
    env = make_env(config("MiniGrid-GoToDoor-5x5-v0"))
    told = {}
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        told[env.unwrapped.mission] = tuple(observation[49 * CELL + 4 :])
    assert len(told) > 2
    assert len(set(told.values())) == len(told)
    assert all(sum(words) == 1 for words in told.values())


@pytest.mark.parametrize(("view", "size"), [("partial", 7 * 4), ("full", 5 * 4)])
def test_pictures_of_the_view(config, view, size):
    env = make_env(config("MiniGrid-Empty-5x5-v0", obs_type="rgb", env_kwargs={"view": view, "tile_size": 4}))
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (3, size, size)
    assert observation.dtype == np.uint8
    assert len(np.unique(observation)) > 3
    # A video is drawn larger than what the agent sees.
    assert env.render().shape == (160, 160, 3)


def test_wrong_names_are_told(config):
    with pytest.raises(EnvironmentFailure, match="MiniGrid-Empty-8x8-v0"):
        make_env(config("MiniGrid-Emty-8x8-v0"))
    with pytest.raises(ConfigError, match="expected partial or full"):
        make_env(config("MiniGrid-Empty-8x8-v0", env_kwargs={"view": "ful"}))
    with pytest.raises(ConfigError, match="doors"):
        make_env(config("MiniGrid-Empty-8x8-v0", env_kwargs={"doors": 3}))


def test_an_open_episode_is_resumed(config, seeds):
    actions = np.random.default_rng(0).integers(0, 7, (12, 2))
    with make_vector(config("MiniGrid-DoorKey-5x5-v0"), 2, seeds, backend="sync") as first:
        first.reset()
        for row in actions[:6]:
            first.step(row)
        state = first.get_state()
        expected = [first.step(row).observation.copy() for row in actions[6:]]
    with make_vector(config("MiniGrid-DoorKey-5x5-v0"), 2, seeds, backend="sync") as second:
        second.set_state(state)
        for row, observation in zip(actions[6:], expected, strict=True):
            np.testing.assert_array_equal(second.step(row).observation, observation)
