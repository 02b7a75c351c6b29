import numpy as np
import pytest

from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector


def cartpole(num_envs: int = 8, seed: int = 0):
    return make_vector(Config(env_id="CartPole-v1", algo_id="ppo"), num_envs, SeedTree(seed))


@pytest.mark.learns
def test_cartpole_is_learned(make_ppo, train):
    workflow = make_ppo(
        cartpole(),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        policy_lr={"start": 1e-3},
        clip_range={"start": 0.2},
        max_env_steps=50_000,
    )
    trained = train(workflow, 50_000)
    assert trained.env_steps <= 50_000
    assert np.mean(trained.returns[-20:]) >= 300
