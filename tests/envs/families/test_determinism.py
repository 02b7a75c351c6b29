"""The same seed gives the same episodes, in one process and in a fresh one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gymlab.envs import make_env

SCRIPT = Path(__file__).with_name("repeat_env.py")
FAMILIES = [
    ("HalfCheetah-v5", "mujoco", {}),
    ("dmc/finger-turn_hard", "dm_control", {}),
    ("MiniGrid-DoorKey-6x6-v0", "minigrid", {}),
    # Cows and zombies vanish at random every tenth step: it takes some hundred until the order of sets tells.
    ("Crafter-v1", "crafter", {"steps": 400, "env_kwargs": {"area": [32, 32], "size": [18, 18]}}),
    ("CarRacing-v3", "Box2D", {"steps": 30}),
]


@pytest.mark.parametrize(("env_id", "module", "options"), FAMILIES, ids=[family[0] for family in FAMILIES])
def test_same_seed_same_episodes(env_id, module, options, monkeypatch):
    pytest.importorskip(module)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from repeat_env import fingerprint

    here = fingerprint(env_id, **options)
    assert fingerprint(env_id, **options) == here
    asked = [sys.executable, str(SCRIPT), env_id, json.dumps(options)]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == here


@pytest.mark.parametrize(("env_id", "module", "options"), FAMILIES, ids=[family[0] for family in FAMILIES])
def test_an_episode_does_not_depend_on_those_before_it(env_id, module, options, seeds, config):
    # A resumed run replays the open episode alone: whatever an environment keeps from earlier ones would be missing.
    pytest.importorskip(module)
    fields = config(env_id, env_kwargs=options.get("env_kwargs", {}))
    seen = []
    for earlier in (1, 0):
        env = make_env(fields, seeds=seeds)
        env.action_space.seed(0)
        actions = [env.action_space.sample() for _ in range(30)]
        # The episode that is compared is number 1, after number 0 or as the first of a fresh environment.
        env.number_from(seeds, -earlier)
        for _ in range(earlier):
            env.reset()
            for action in actions[:20]:
                env.step(action)
        first, _ = env.reset()
        assert env.episode_index == 1
        seen.append([first, *(env.step(action)[0] for action in actions)])
        env.close()
    np.testing.assert_array_equal(*(np.stack(observations) for observations in seen))
