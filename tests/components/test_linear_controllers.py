"""C: sizes of the paper, a population as one product, and what outputs mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.linear_controllers import LinearControllers, action_map
from gymlab.errors import ConfigError

CAR = spaces.Box(np.array([-1, 0, 0], np.float32), np.array([1, 1, 1], np.float32))


def actions(space, kind="auto", order=(0, 1, 2), hold=0.8, drift=0.1):
    return action_map(space, kind, order, hold, drift)


def test_sizes_of_the_paper() -> None:
    assert LinearControllers(32 + 256, 3).size == 867
    assert LinearControllers(64 + 512 + 512, 1, bias=False).size == 1088


@pytest.mark.parametrize("bias", [True, False])
def test_a_population_is_each_controller_by_itself(bias: bool) -> None:
    torch.manual_seed(0)
    controllers = LinearControllers(5, 3, bias)
    weights, features = torch.randn(7, controllers.size), torch.randn(7, 4, 5)
    together = controllers(weights, features)
    assert together.shape == (7, 4, 3)
    for number in range(7):
        matrix = weights[number, :15].view(5, 3)
        alone = features[number] @ matrix + (weights[number, 15:] if bias else 0)
        torch.testing.assert_close(together[number], alone)


def test_the_largest_output_is_the_choice() -> None:
    mapped = actions(spaces.Discrete(3, start=5))
    outputs = torch.tensor([[0.1, 0.3, -1.0], [2.0, 0.0, 1.0]])
    vectors = mapped.vectors(mapped.squash(outputs))
    assert mapped.to_environment(vectors.numpy()).tolist() == [6, 5]
    np.testing.assert_array_equal(mapped.from_environment(np.array([6, 5])), vectors)
    masked = mapped.squash(outputs, np.array([[True, False, True], [False, False, True]]))
    assert mapped.to_environment(masked.numpy()).tolist() == [5, 7]


def test_tanh_is_scaled_to_the_bounds() -> None:
    mapped = actions(spaces.Box(-2, 2, (1,), np.float32))
    vectors = mapped.vectors(mapped.squash(torch.tensor([[0.5]])))
    assert mapped.to_environment(vectors.numpy())[0, 0] == pytest.approx(2 * np.tanh(0.5))
    assert mapped.from_environment(np.array([[1.0]])).tolist() == [[0.5]]
    with pytest.raises(ConfigError, match="masked"):
        mapped.squash(torch.zeros(1, 1), np.ones((1, 1), bool))


def test_car_racing_as_in_the_paper() -> None:
    mapped = actions(CAR, "car_racing")
    raw = mapped.squash(torch.tensor([[0.3, 0.0, -1.0], [-0.3, 20.0, 0.4]]))
    vectors = mapped.vectors(raw).numpy()
    np.testing.assert_allclose(vectors, [[np.tanh(0.3), 0.5, 0], [-np.tanh(0.3), 1, np.tanh(0.4)]], rtol=1e-6)
    assert all(CAR.contains(action) for action in mapped.to_environment(vectors))


def test_doom_as_in_the_paper() -> None:
    mapped = actions(spaces.Discrete(3), "thresholds", order=(1, 0, 2))
    assert (mapped.outputs, mapped.size) == (1, 1)
    vectors = np.array([[-0.34], [-0.33], [0.0], [0.33], [0.34]], np.float32)
    assert mapped.to_environment(vectors).tolist() == [1, 0, 0, 0, 2]
    assert mapped.from_environment(np.array([1, 0, 2])).ravel().tolist() == [-1, 0, 1]


def test_random_choices_are_held() -> None:
    mapped, generator = actions(spaces.Discrete(4), hold=0.9), np.random.default_rng(0)
    raw = mapped.walk(np.zeros((1000, 4), np.float32), np.ones(1000, bool), generator)
    assert (raw.sum(1) == 1).all()
    np.testing.assert_allclose(raw.mean(0), 0.25, atol=0.05)
    again = mapped.walk(raw, np.zeros(1000, bool), generator)
    # Nine in ten are held, and a quarter of the others come out the same.
    assert (again == raw).all(1).mean() == pytest.approx(0.925, abs=0.03)
    allowed = np.zeros((1000, 4), bool)
    allowed[:, 2] = True
    assert mapped.walk(raw, np.zeros(1000, bool), generator, allowed)[:, 2].all()


def test_continuous_actions_wander() -> None:
    mapped, generator = actions(CAR, "auto", drift=0.1), np.random.default_rng(0)
    raw = mapped.walk(np.zeros((2000, 3), np.float32), np.ones(2000, bool), generator)
    assert raw.std() == pytest.approx(np.sqrt(1 / 3), abs=0.02)
    moved = mapped.walk(raw, np.zeros(2000, bool), generator)
    assert np.abs(moved).max() <= 1
    assert np.corrcoef(raw[:, 0], moved[:, 0])[0, 1] > 0.95
    assert 0.05 < (moved - raw).std() <= 0.1


def test_spaces_that_do_not_fit_are_refused() -> None:
    for space, kind in ((spaces.Discrete(3), "car_racing"), (spaces.Box(-1, 1, (2,)), "car_racing")):
        with pytest.raises(ConfigError, match="steering, gas and brake"):
            actions(space, kind)
    with pytest.raises(ConfigError, match="threshold_actions"):
        actions(spaces.Discrete(2), "thresholds")
    with pytest.raises(ConfigError, match="env_wrappers"):
        actions(spaces.MultiBinary(3))


def test_a_random_drive_is_drawn_back_to_half_the_gas_and_no_brake() -> None:
    car = action_map(CAR, "car_racing", (0, 1, 2), 0.0, 0.0)
    generator, raw = np.random.default_rng(0), np.array([[1.0, -1.0, 1.0], [0.5, 0.5, 0.5]], np.float32)
    walked = car.walk(raw, np.array([False, True]), generator)
    np.testing.assert_allclose(walked, [[0.9, -0.9, 0.8], [0.0, 0.0, -1.0]], rtol=1e-6)
    np.testing.assert_allclose(car.vectors(torch.from_numpy(walked)), [[0.9, 0.05, 0.8], [0.0, 0.5, 0.0]], atol=1e-6)
