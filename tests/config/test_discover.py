"""What can be trained."""

from gymlab.config import discover
from gymlab.config.environment_ids import family_of


def test_shipped_environments_are_listed():
    entries = {entry.name: entry for entry in discover()}
    assert entries["CartPole-v1"].experiments[:2] == ["CartPole-v1:ppo", "CartPole-v1:ppo_pixels"]
    pixels = entries["CartPole-v1"].variants[1]
    assert (pixels.name, pixels.algo_id) == ("ppo_pixels", "ppo")
    assert entries["LunarLanderContinuous-v3"].env_id == "LunarLander-v3"
    assert entries["Bandit-v0"].family == "bandit"
    assert all(
        entry.description and all(variant.description for variant in entry.variants) for entry in entries.values()
    )


def test_a_users_files_are_merged_in(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nmine: {algo_id: qlearning, description: my own}\n")
    write("environments/Own-v0.yaml", "_env: &env {env_id: ALE/Pong-v5}\nppo: {<<: *env}\n")
    write("environments/broken.yaml", "a: [")
    entries = {entry.name: entry for entry in discover(conf)}
    assert [variant.name for variant in entries["CartPole-v1"].variants][:3] == ["mine", "ppo", "ppo_pixels"]
    assert entries["CartPole-v1"].variants[0].algo_id == "q_learning"
    assert (entries["Own-v0"].env_id, entries["Own-v0"].family) == ("ALE/Pong-v5", "atari")
    assert "broken" not in entries


def test_families():
    assert family_of("ALE/Pong-v5") == "atari"
    assert family_of("VizDoom-Basic-v0") == "vizdoom"
    assert family_of("Bandit/steep") == family_of("Bandit-v0") == "bandit"
    assert family_of("dmc/cartpole-swingup") == "dmc"
    assert family_of("CartPole-v1") == "gymnasium"
