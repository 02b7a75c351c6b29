"""Environments of plugins, as a command line names them."""

import gymnasium as gym

from gymlab.envs.origin import as_typed, registers


def test_an_environment_of_a_plugin_is_named_with_it(monkeypatch):
    monkeypatch.setattr("gymlab.envs.origin._PLUGINS", {})
    with registers("my mazes.py"):
        gym.register("OfAPlugin-v0", entry_point=gym.Env)
    gym.registry.pop("OfAPlugin-v0")
    assert as_typed("OfAPlugin-v0") == "OfAPlugin-v0 --plugin 'my mazes.py'"
    assert as_typed("mazes:OfAPlugin-v0") == "mazes:OfAPlugin-v0"
    assert as_typed("CartPole-v1") == "CartPole-v1"
