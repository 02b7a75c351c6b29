import warnings

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.step import Step
from gymlab.envs.vector import FiniteCheck, Slot, is_image_space, observation_layout
from gymlab.errors import EnvironmentFailure, NonFiniteError

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)


def returned(slot: Slot) -> Step:
    return Step(slot.observation, slot.reward, slot.terminated, slot.truncated)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_place_is_looked_at_without_a_warning(value):
    slot = Slot(4, BOX)
    check = FiniteCheck("Thing-v0", slot)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(returned(slot), lambda index: (0, 0))
        for index in range(4):
            slot.reward[index] = value
            with pytest.raises(
                NonFiniteError, match=f"Thing-v0 returned a reward .*environment {index}, episode 5, step 6"
            ):
                check(returned(slot), lambda index: (5, 6))
            slot.reward[index] = 0
            for column in range(3):
                slot.observation[index, column] = value
                with pytest.raises(NonFiniteError, match=f"an? observation .*environment {index},"):
                    check(returned(slot), lambda index: (5, 6))
                slot.observation[index, column] = 0


def test_rows_of_the_final_observation_count_only_where_an_episode_ended():
    slot = Slot(2, BOX)
    check = FiniteCheck("Thing-v0", slot)
    step = returned(slot)
    step.final_observation = np.full((2, 3), np.nan, dtype=np.float32)
    step.final_observation[0] = 0.0
    slot.terminated[0] = True
    check(step, lambda index: (0, 0))
    slot.truncated[1] = True
    with pytest.raises(NonFiniteError, match="final observation"):
        check(step, lambda index: (0, 0))


def test_integers_need_no_check():
    slot = Slot(2, gym.spaces.Discrete(3))
    FiniteCheck("Thing-v0", slot)(returned(slot), lambda index: (0, 0))
    assert slot.observation.dtype == np.int64


def test_large_values_are_shown_in_short():
    slot = Slot(1, gym.spaces.Box(-1, 1, (5000,), np.float32))
    slot.observation[0, 7] = np.nan
    with pytest.raises(NonFiniteError) as error:
        FiniteCheck("Thing-v0", slot)(returned(slot), lambda index: (0, 0))
    assert len(str(error.value)) < 600


def test_layout_and_images():
    assert observation_layout(gym.spaces.MultiBinary(4)) == ((4,), np.dtype(np.int8))
    assert is_image_space(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8))
    assert not is_image_space(BOX)
    with pytest.raises(EnvironmentFailure, match="no fixed shape"):
        observation_layout(gym.spaces.Text(5))
