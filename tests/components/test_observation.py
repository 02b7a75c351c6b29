"""Encoding and normalisation by numbers worked out by hand, and the cases C1-C4 and C7 of wrongly kept statistics."""

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.observation import ObservationEncoder, RewardNormalizer, RunningMoments
from gymlab.errors import ConfigError


def vector_space(size: int = 2) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_running_moments_of_two_batches_are_those_of_all_rows():
    moments = RunningMoments(np.zeros(1), np.ones(1), np.zeros(()))
    moments.update(np.array([[1.0], [3.0]]))
    assert moments.mean[0] == 2.0
    assert moments.variance[0] == 1.0
    moments.update(np.array([[5.0], [7.0], [9.0]]))
    # All rows: 1, 3, 5, 7, 9: mean 5, squared deviations 16 + 4 + 0 + 4 + 16 over 5.
    assert moments.mean[0] == pytest.approx(5.0)
    assert moments.variance[0] == pytest.approx(8.0)
    assert float(moments.count) == 5.0


def test_one_hot_of_discrete_counts_from_its_offset():
    encoder = ObservationEncoder(spaces.Discrete(3, start=5))
    assert encoder.output_shape == (3,)
    np.testing.assert_array_equal(encoder.encode(np.array([5, 7])), [[1, 0, 0], [0, 0, 1]])


def test_multi_discrete_gives_one_hots_side_by_side():
    encoder = ObservationEncoder(spaces.MultiDiscrete([2, 3], start=[0, 1]))
    assert encoder.output_shape == (5,)
    np.testing.assert_array_equal(encoder.encode(np.array([[1, 3], [0, 1]])), [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]])


def test_multi_binary_becomes_floats():
    encoded = ObservationEncoder(spaces.MultiBinary(3)).encode(np.array([[1, 0, 1]], dtype=np.int8))
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded, [[1, 0, 1]])


def test_images_stay_uint8_without_a_copy():
    encoder = ObservationEncoder(spaces.Box(0, 255, (4, 84, 84), np.uint8), normalize="rolling")
    images = np.zeros((2, 4, 84, 84), dtype=np.uint8)
    assert encoder.is_image
    assert encoder.output_shape == (4, 84, 84)
    assert encoder.encode(images, update=True) is images
    assert not list(encoder.buffers())


def test_float32_vectors_pass_without_a_copy_when_nothing_is_normalised():
    batch = rows([1, 2])
    assert np.shares_memory(ObservationEncoder(vector_space()).encode(batch), batch)


def test_boxes_of_higher_rank_and_other_types_become_float32_vectors():
    encoder = ObservationEncoder(spaces.Box(0, 10, (2, 2), np.int64))
    encoded = encoder.encode(np.array([[[1, 2], [3, 4]]]))
    assert encoder.output_shape == (4,)
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded, [[1, 2, 3, 4]])


def test_static_maps_finite_bounds_to_unit_interval_and_leaves_infinite_ones_alone():
    low = np.array([-2.0, -np.inf, 0.0, -3.4e38], dtype=np.float32)
    high = np.array([2.0, np.inf, 10.0, 3.4e38], dtype=np.float32)
    encoder = ObservationEncoder(spaces.Box(low, high), normalize="static")
    np.testing.assert_allclose(
        encoder.encode(rows([-2, 50, 5, 7], [1, -3, 10, -7])), [[0, 50, 0.5, 7], [0.75, -3, 1, -7]]
    )


def test_rolling_normalises_by_mean_and_variance_of_each_dimension():
    encoder = ObservationEncoder(vector_space(), normalize="rolling")
    encoded = encoder.encode(rows([0, 10], [4, 10]), update=True)
    # Dimension 0: mean 2, variance 4. Dimension 1: constant, so its deviation is 0.
    np.testing.assert_allclose(encoded, [[-1, 0], [1, 0]], atol=1e-6)


def test_rolling_clips():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling", clip=3.0)
    encoder.encode(rows([-1], [1]), update=True)
    np.testing.assert_allclose(encoder.encode(rows([100], [-100], [2])), [[3], [-3], [2]], atol=1e-6)


def test_rows_that_are_not_valid_do_not_enter_the_statistics():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling")
    encoder.encode(rows([0], [4], [1e6]), update=True, valid=np.array([True, True, False]))
    assert float(encoder.mean) == 2.0
    assert float(encoder.variance) == 4.0
    encoder.encode(rows([1e6]), update=True, valid=np.array([False]))
    assert float(encoder.count) == 2.0


def test_c3_evaluation_changes_nothing():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling")
    encoder.encode(rows([0], [4]), update=True)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.encode(rows([100], [-7]))
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_c2_statistics_are_saved_with_the_model_and_used_after_loading():
    trained = ObservationEncoder(vector_space(1), normalize="rolling")
    trained.encode(rows([0], [4]), update=True)
    for assign in (False, True):
        loaded = ObservationEncoder(vector_space(1), normalize="rolling")
        loaded.load_state_dict(trained.state_dict(), assign=assign)
        np.testing.assert_allclose(loaded.encode(rows([4])), [[1]], atol=1e-6)
        loaded.encode(rows([4]), update=True)
        assert float(loaded.count) == 3.0


def test_a_copy_has_statistics_of_its_own():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling")
    encoder.encode(rows([0], [4]), update=True)
    twin = copy.deepcopy(encoder)
    twin.encode(rows([8]), update=True)
    assert float(twin.mean) == 4.0
    assert float(encoder.mean) == 2.0
    assert float(twin.count) == 3.0


def test_statistics_keep_their_precision_when_the_model_changes_type():
    model = torch.nn.Sequential(ObservationEncoder(vector_space(1), normalize="rolling"), torch.nn.Linear(1, 1))
    model.to(torch.bfloat16)
    assert model[1].weight.dtype == torch.bfloat16
    assert model[0].mean.dtype == torch.float64


def test_c4_final_observations_get_the_same_transform():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling")
    encoder.encode(rows([0], [4]), update=True)
    np.testing.assert_array_equal(encoder.encode(rows([3])), encoder.encode(rows([3], [1]))[:1])


def test_c6_the_encoder_does_not_hand_out_or_change_its_input():
    encoder = ObservationEncoder(vector_space(1), normalize="rolling")
    batch = rows([0], [4])
    encoded = encoder.encode(batch, update=True)
    encoded[:] = 99
    np.testing.assert_array_equal(batch, [[0], [4]])
    np.testing.assert_allclose(encoder.encode(batch), [[-1], [1]], atol=1e-6)


def test_unknown_normalisation_is_refused():
    with pytest.raises(ConfigError, match="rolling"):
        ObservationEncoder(vector_space(), normalize="always")


def test_reward_is_divided_by_the_deviation_of_the_discounted_return():
    normalizer = RewardNormalizer(gamma=0.5, num_envs=2)
    no_end = np.zeros(2, dtype=bool)
    first = normalizer(np.array([1.0, 3.0]), no_end)
    # Returns 1 and 3: variance 1, so the reward passes as it is: no mean is subtracted.
    np.testing.assert_allclose(first, [1, 3], rtol=1e-6)
    second = normalizer(np.array([2.0, 0.0]), no_end)
    # Returns 2.5 and 1.5 join 1 and 3: mean 2, squared deviations 1 + 1 + 0.25 + 0.25 over 4.
    np.testing.assert_allclose(second, [2 / math.sqrt(0.625), 0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_c1_accumulator_is_zeroed_at_every_end_of_an_episode(kind):
    normalizer = RewardNormalizer(gamma=1.0, num_envs=1)
    terminated, truncated = np.array([kind == "terminated"]), np.array([kind == "truncated"])
    normalizer(np.array([5.0]), terminated | truncated)
    assert normalizer.get_state()["returns"] == [0.0]
    normalizer(np.array([1.0]), np.array([False]))
    # Returns seen: 5 and, after the end, 1 (not 6).
    assert normalizer.get_state()["mean"] == pytest.approx(3.0)


def test_c1_dead_rows_are_skipped():
    normalizer = RewardNormalizer(gamma=1.0, num_envs=2)
    normalizer(np.array([2.0, 4.0]), np.array([True, False]))
    normalizer(np.array([0.0, 4.0]), np.array([False, False]), valid=np.array([False, True]))
    state = normalizer.get_state()
    assert state["count"] == 3.0
    assert state["mean"] == pytest.approx((2 + 4 + 8) / 3)
    np.testing.assert_array_equal(state["returns"], [0, 8])


def test_reward_clip_and_frozen_use():
    normalizer = RewardNormalizer(gamma=1.0, num_envs=2, clip=2.0)
    normalizer(np.array([-1.0, 1.0]), np.array([True, True]))
    before = normalizer.get_state()
    np.testing.assert_allclose(
        normalizer(np.array([50.0, -0.5]), np.zeros(2, bool), update=False), [2, -0.5], rtol=1e-6
    )
    assert normalizer.get_state()["count"] == before["count"]


def test_reward_normalizer_continues_from_its_state():
    generator = np.random.default_rng(0)
    steps = [(generator.normal(size=3), generator.random(3) < 0.2) for _ in range(20)]
    whole, resumed = RewardNormalizer(0.99, 3), RewardNormalizer(0.99, 3)
    expected = [whole(*step) for step in steps]
    first = RewardNormalizer(0.99, 3)
    for step in steps[:10]:
        first(*step)
    resumed.set_state(first.get_state())
    for step, value in zip(steps[10:], expected[10:], strict=True):
        np.testing.assert_array_equal(resumed(*step), value)
