"""Test environments in Gymnasium's registry."""

import gymnasium as gym
import pytest
from counting_env import Counting

from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree


@pytest.fixture(autouse=True)
def test_environments():
    gym.register("Counting-v0", entry_point=Counting)
    yield
    gym.registry.pop("Counting-v0")


@pytest.fixture
def seeds() -> SeedTree:
    return SeedTree(7)


@pytest.fixture
def config():
    def make(env_id: str = "CartPole-v1", **fields) -> Config:
        return Config(env_id=env_id, algo_id="ppo", **fields)

    return make
