"""Nested state survives JSON + safetensors unchanged."""

import json
import math

import numpy as np
import pytest
import torch

from gymlab.engine.state import decode, encode


def round_trip(value):
    tensors = {}
    tree = json.loads(json.dumps(encode(value, "part", tensors), allow_nan=False))
    return decode(tree, tensors)


def test_plain_values_keep_their_types():
    value = {"a": 1, "b": 2.5, "c": None, "d": True, "e": ["x", (1, 2)], "f": {}}
    back = round_trip(value)
    assert back == value
    assert isinstance(back["e"][1], tuple)


def test_non_finite_floats_and_large_integers_survive():
    back = round_trip({"nan": math.nan, "inf": -math.inf, "big": 2**127 + 1})
    assert math.isnan(back["nan"])
    assert back["inf"] == -math.inf
    assert back["big"] == 2**127 + 1


def test_arrays_and_tensors_keep_dtype_and_values():
    value = {
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "tensor": torch.tensor([1.5, 2.5], dtype=torch.float64),
    }
    back = round_trip(value)
    assert back["array"].dtype == np.int16
    np.testing.assert_array_equal(back["array"], value["array"])
    assert torch.equal(back["tensor"], value["tensor"])


def test_optimizer_state_with_integer_keys_loads_back():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    optimizer.step()
    other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.5)
    other.load_state_dict(round_trip(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == 0.1
    assert torch.equal(next(iter(other.state.values()))["exp_avg"], optimizer.state[parameter]["exp_avg"])


def test_generator_state_resumes_the_stream():
    generator = np.random.default_rng(3)
    generator.random(5)
    state = round_trip(generator.bit_generator.state)
    expected = generator.random(4)
    other = np.random.default_rng(0)
    other.bit_generator.state = state
    np.testing.assert_array_equal(other.random(4), expected)


def test_objects_that_would_need_pickle_are_refused_by_path():
    with pytest.raises(TypeError, match="part/inner"):
        encode({"inner": object()}, "part", {})


def test_tensors_lie_where_torch_would_lay_them():
    held = torch.arange(33.0)
    displaced = held[1:]
    assert displaced.data_ptr() % 64
    read = decode({"$tensor": "part"}, {"part": displaced})
    assert torch.equal(read, displaced)
    assert read.data_ptr() % 64 == 0
