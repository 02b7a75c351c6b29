"""Replayed windows as the model takes them, and dreams as they are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gymlab.components.dreaming import draw_dream, time_first


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


def test_a_picture_shows_where_reconstruction_and_dream_are_wrong(tmp_path: Path) -> None:
    """A dream that is all wrong where the reconstruction is right: one black row, one white."""
    from matplotlib.image import imread

    truth = np.full((3, 1, 8, 8), 255, np.uint8)
    drawn = imread(draw_dream(tmp_path / "dream.png", (truth, truth, np.zeros_like(truth))))
    column = drawn[:, drawn.shape[1] // 2, :3].mean(-1)
    dark = "".join("x" if value < 0.02 else " " for value in column)
    thick = [run for run in dark.split() if len(run) > 20]
    assert len(thick) == 2, "the reconstruction's difference and the dream are black, the others are not"
