"""Perturbation saliency finds the spot that an answer hangs on, and nothing elsewhere."""

import numpy as np
import pytest

from gymlab.inspector.routes import HttpError
from gymlab.inspector.saliency import blur, saliency


class Watcher:
    """Its policy hangs on the mean of one corner of the picture, its value on another."""

    remembers = False

    def initial_state(self, num_envs):
        return np.zeros(num_envs) if self.remembers else None

    def act(self, observation, state, *, deterministic):
        corner = observation[:, 0, :20, :20].astype(float).std(axis=(1, 2)) / 255
        other = observation[:, 0, -20:, -20:].astype(float).std(axis=(1, 2)) / 255
        return (
            np.zeros(len(observation), int),
            state,
            {"probabilities": np.stack([corner, 1 - corner], 1), "value": other},
        )


class Agent:
    def __init__(self):
        self.workflow = Watcher()

    class config:
        algo_id = "watcher"


def test_the_spots_that_matter_are_found():
    observation = np.random.default_rng(0).integers(0, 256, (2, 80, 80), dtype=np.uint8)
    found = saliency(Agent(), observation)
    assert "Greydanus" in found["method"]
    assert (found["rows"], found["columns"]) == (17, 17)
    policy, value = np.array(found["policy"]), np.array(found["value"])
    assert policy[:6, :6].sum() > 0.99 * policy.sum()
    assert value[-6:, -6:].sum() > 0.99 * value.sum()
    assert found["most"] == {"policy": policy.max(), "value": value.max()}


def test_a_flat_picture_has_nothing_to_blur():
    found = saliency(Agent(), np.full((1, 40, 60), 90, np.uint8))
    assert found["most"] == {"policy": 0.0, "value": 0.0}
    assert (found["rows"], found["columns"]) == (11, 17)


def test_blur_keeps_the_mean_of_a_flat_picture_and_spreads_a_point():
    flat = np.full((1, 9, 12), 5.0, np.float32)
    np.testing.assert_allclose(blur(flat, 1.5), flat, rtol=1e-5)
    point = np.zeros((1, 21, 21), np.float32)
    point[0, 10, 10] = 1
    spread = blur(point, 2.0)
    assert spread[0, 10, 10] == pytest.approx(1 / (2 * np.pi * 4), rel=1e-3)
    assert spread[0, 10, 12] == pytest.approx(spread[0, 10, 10] * np.exp(-0.5), rel=1e-3)


def test_an_agent_with_a_memory_is_refused():
    agent = Agent()
    agent.workflow.remembers = True
    with pytest.raises(HttpError, match="without a memory"):
        saliency(agent, np.zeros((1, 20, 20), np.uint8))
