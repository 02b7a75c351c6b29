"""What a fresh process prints about the first observations of an environment: run as a script with id and fields."""

import hashlib
import json
import sys

import numpy as np


def fingerprint(env_id: str, steps: int = 200, **fields) -> str:
    """A hash of the first observations and rewards under random actions, all seeded."""
    from gymlab.config.schema import Config
    from gymlab.engine.seeding import SeedTree
    from gymlab.envs import make_env

    env = make_env(Config(env_id=env_id, algo_id="ppo", **fields), seeds=SeedTree(5))
    env.action_space.seed(5)
    seen = hashlib.sha256()
    observation, _ = env.reset()
    for _ in range(steps):
        seen.update(np.ascontiguousarray(observation).tobytes())
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.update(np.float64(reward).tobytes())
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    return seen.hexdigest()


if __name__ == "__main__":
    # Objects at other addresses than in the process that asks.
    ballast = [object() for _ in range(12_345)]
    print(fingerprint(sys.argv[1], **json.loads(sys.argv[2])))
