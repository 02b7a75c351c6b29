"""Spaces survive JSON, and dicts become vectors in the order that is promised."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from gymlab.envs.spaces import (
    Flattener,
    describe_space,
    flatten_observation,
    flattened_images,
    space_from_json,
    space_line,
    space_to_json,
    stored_space,
)
from gymlab.errors import ConfigError, EnvironmentFailure

SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(np.array([-4.8, -np.inf], np.float32), np.array([4.8, np.inf], np.float32)),
    spaces.Box(0, 255, (4, 84, 84), np.uint8),
    spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Box(0, 2**60, (1,), np.int64),
    spaces.Box(-1.0, 1.0, (), np.float32),
    spaces.Discrete(4),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, 1]]),
    spaces.MultiBinary(5),
    spaces.MultiBinary([2, 3]),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))]),
    spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Box(-1, 1, (1,))})]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_round_trip_through_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)
    back = space_from_json(json.loads(text))
    assert back == space
    if isinstance(space, spaces.Dict):
        assert list(back.spaces) == list(space.spaces)


def test_bounds_are_written_compactly():
    image = space_to_json(spaces.Box(0, 255, (4, 84, 84), np.uint8))
    assert image == {"type": "Box", "low": 0, "high": 255, "shape": [4, 84, 84], "dtype": "uint8"}
    assert space_to_json(SPACES[1])["high"] == [pytest.approx(4.8), "inf"]


def test_unknown_type_is_refused():
    with pytest.raises(ConfigError, match="Graph"):
        space_from_json({"type": "Graph"})


def test_dict_keys_are_sorted_and_parts_follow_each_other():
    space = spaces.Dict(
        {
            "speed": spaces.Box(-1, 1, (2,), np.float64),
            "door": spaces.Discrete(3, start=1),
            "bits": spaces.MultiBinary(2),
            "pair": spaces.Tuple([spaces.MultiDiscrete([2, 2]), spaces.Box(0, 9, (1, 2), np.float32)]),
        }
    )
    value = {
        "speed": np.array([0.5, -0.5]),
        "door": 2,
        "bits": np.array([1, 0], dtype=np.int8),
        "pair": (np.array([0, 1]), np.array([[7, 8]])),
    }
    vector = flatten_observation(space, value)
    assert vector.dtype == np.float32
    # bits, door, pair, speed
    np.testing.assert_array_equal(vector, [1, 0, 0, 1, 0, 1, 0, 0, 1, 7, 8, 0.5, -0.5])
    assert stored_space(space).contains(vector)


def test_other_spaces_keep_their_form():
    image = np.zeros((3, 8, 8), dtype=np.uint8)
    assert flatten_observation(spaces.Box(0, 255, (3, 8, 8), np.uint8), image).dtype == np.uint8
    assert flatten_observation(spaces.Discrete(3), 2) == 2
    assert flatten_observation(spaces.Box(-1, 1, (2,), np.float64), np.array([0.1, 0.2])).dtype == np.float32
    assert stored_space(spaces.Box(-1, 1, (2,), np.float64)).dtype == np.float32
    assert Flattener(spaces.Discrete(3)).is_identity


def test_a_batch_is_flattened_row_by_row():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-9, 9, (1,))})
    batch = {"a": np.array([0, 1]), "b": np.array([[3.0], [4.0]])}
    np.testing.assert_array_equal(Flattener(space).batch(batch, 2), [[1, 0, 3], [0, 1, 4]])


def test_spaces_without_a_fixed_shape_are_refused_by_name():
    with pytest.raises(EnvironmentFailure, match="Text"):
        stored_space(spaces.Text(5))
    with pytest.raises(EnvironmentFailure, match="Sequence"):
        Flattener(spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}))


def parts(count, **more):
    return spaces.Dict({f"sensor_{index:02d}": spaces.Box(-1, 1, (3,), np.float32) for index in range(count)} | more)


def test_large_spaces_are_described_in_a_line():
    text = describe_space(parts(60))
    assert text.startswith("Dict of 60 parts: sensor_00 (3), sensor_01 (3), sensor_02 (3), sensor_03 (3), 56 more")
    wide = spaces.Box(np.zeros(500, np.float32), np.arange(1, 501, dtype=np.float32))
    assert space_line(wide) == "Box 500 float32 in [0, 500]"
    assert space_line(spaces.Discrete(2)) == "Discrete(2)"
    assert len(space_line(stored_space(parts(60)))) < 120


def test_a_picture_among_other_parts_is_told():
    camera = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    told = flattened_images(parts(2, camera=camera))
    assert "The picture 'camera' (64x64x3) is a part of a Dict: it is flattened to 12,288 of the 12,294 numbers" in told
    assert "'camera' (64x64x3) and 1 more" in flattened_images(parts(2, camera=camera, depth=camera))
    assert flattened_images(camera) == flattened_images(parts(3)) == ""
