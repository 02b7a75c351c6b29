"""Replayed windows as the model takes them."""

from __future__ import annotations

import numpy as np
import torch

from gymlab.components.dreaming import time_first


def test_rewards_are_told_in_their_unit() -> None:
    values = {"reward": np.array([[0.0, -16.0, 8.0]], np.float32), "action": np.zeros((1, 3, 1), np.float32)}
    data = time_first(values, 0, torch.device("cpu"), reward_unit=8.0)
    assert data["reward"][:, 0].tolist() == [0.0, -2.0, 1.0]
    assert values["reward"][0].tolist() == [0.0, -16.0, 8.0]


def test_actions_stand_beside_the_step_that_they_led_to() -> None:
    values = {"reward": np.zeros((1, 3), np.float32), "action": np.array([[[1.0], [2.0], [3.0]]], np.float32)}
    values["latent/deter"] = np.array([[[7.0], [8.0], [9.0]]], np.float32)
    plain = time_first({k: v for k, v in values.items() if k != "latent/deter"}, 0, torch.device("cpu"))
    assert plain["previous_action"].flatten().tolist() == [0.0, 1.0, 2.0]
    from_memory = time_first(values, 1, torch.device("cpu"))
    assert from_memory["previous_action"].flatten().tolist() == [1.0, 2.0]
    assert from_memory["deter"].flatten().tolist() == [7.0]
