"""Observations taken apart and put together again."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from gymlab.components.observation_parts import ObservationParts
from gymlab.envs.spaces import flatten_observation, stored_space

NESTED = spaces.Dict(
    {
        "arm": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "camera": spaces.Box(0, 255, (5, 4, 3), np.uint8),
        "mode": spaces.Discrete(3),
        "side": spaces.Dict({"depth": spaces.Box(0, 255, (1, 6, 4), np.uint8)}),
    }
)


def test_images_of_a_dict_come_out_channel_first_and_everything_else_as_one_vector() -> None:
    generator = np.random.default_rng(0)
    observation = {
        "arm": np.array([0.5, -2.0], np.float32),
        "camera": generator.integers(0, 256, (5, 4, 3), dtype=np.uint8),
        "mode": 2,
        "side": {"depth": generator.integers(0, 256, (1, 6, 4), dtype=np.uint8)},
    }
    parts = ObservationParts(stored_space(NESTED), NESTED)
    assert parts.shapes == {"camera": (3, 5, 4), "side.depth": (1, 6, 4), "vector": (5,)}
    flat = flatten_observation(NESTED, observation)[None]
    found = parts.split(flat)
    np.testing.assert_array_equal(found["camera"][0], observation["camera"].transpose(2, 0, 1))
    np.testing.assert_array_equal(found["side.depth"][0], observation["side"]["depth"])
    assert found["camera"].dtype == np.uint8
    assert found["vector"].tolist() == [[0.5, -2.0, 0, 0, 1]]
    np.testing.assert_array_equal(parts.join(found), flat)


def test_a_single_image_stays_as_it_is() -> None:
    space = spaces.Box(0, 255, (3, 8, 8), np.uint8)
    parts = ObservationParts(space, space)
    images = np.zeros((2, 3, 8, 8), np.uint8)
    assert parts.shapes == {"image": (3, 8, 8)}
    assert parts.split(images)["image"] is images
    assert parts.join({"image": images}).shape == images.shape


def test_numbers_of_states_are_one_hots_and_come_back_as_numbers() -> None:
    parts = ObservationParts(spaces.Discrete(4, start=1))
    assert parts.shapes == {"vector": (4,)}
    assert parts.split(np.array([3]))["vector"].tolist() == [[0, 0, 1, 0]]
    assert parts.join({"vector": np.array([[0.1, 0.2, 0.9, 0.0]])}).tolist() == [3]


def test_matrices_are_vectors_and_come_back_in_their_shape() -> None:
    parts = ObservationParts(spaces.Box(-1, 1, (2, 3), np.float32))
    assert parts.shapes == {"vector": (6,)}
    rows = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.testing.assert_array_equal(parts.join(parts.split(rows)), rows)


def test_what_is_restored_is_in_the_space() -> None:
    bounded = ObservationParts(spaces.Box(-1, 1, (2,), np.float32))
    assert bounded.restored({"vector": np.array([[0.5, -3.0]])}).tolist() == [[0.5, -1.0]]
    bytes_ = ObservationParts(spaces.Box(0, 255, (1, 1, 3), np.uint8))
    pixels = bytes_.restored({"image": np.array([[[[-4.0, 99.6, 300.0]]]], np.float32)})
    assert (pixels.dtype, pixels.ravel().tolist()) == (np.uint8, [0, 100, 255])
    several = ObservationParts(spaces.MultiDiscrete([2, 3], start=[0, 5]))
    assert several.restored({"vector": np.array([[0.9, 0.1, 0.0, 0.2, 0.7]])}).tolist() == [[0, 7]]
    switches = ObservationParts(spaces.MultiBinary(3))
    assert switches.restored({"vector": np.array([[0.9, 0.2, 0.6]])}).tolist() == [[1, 0, 1]]
