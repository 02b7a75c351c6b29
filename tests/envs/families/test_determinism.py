"""The same seed gives the same episodes, in one process and in a fresh one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
