import subprocess
import sys

import numpy as np
import pytest

from gymlab.metrics.names import ENV_STEPS, episode_return
from gymlab.metrics.plots import curves, learning_curve, progress


def table(scale=1.0, length=40):
    steps = [8 * (index + 1) for index in range(length)]
    evaluated = [float(index) if index % 10 == 9 else None for index in range(length)]
    return {
        ENV_STEPS: steps,
        episode_return("train"): [scale * index for index in range(length)],
        episode_return("val"): evaluated,
        episode_return("val", "ci95_low"): [None if value is None else value - 2 for value in evaluated],
        episode_return("val", "ci95_high"): [None if value is None else value + 2 for value in evaluated],
    }


def pixels(path):
    import imageio.v3 as imageio

    return imageio.imread(path)[..., :3].reshape(-1, 3).astype(int)


def share_of(path, colour):
    """Share of the pixels within a little of a colour."""
    target = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)])
    return (np.abs(pixels(path) - target).max(axis=1) < 12).mean()


def test_a_run_is_drawn_with_its_evaluation_and_threshold(tmp_path):
    from gymlab.metrics.plots import EVALUATION, THRESHOLD, TRAINING

    with_threshold = learning_curve(table(), tmp_path / "a.png", threshold=30, title="CartPole-v1:ppo")
    without = learning_curve(table(), tmp_path / "b.png")
    for colour in (TRAINING, EVALUATION):
        assert share_of(with_threshold, colour) > 1e-4
    assert share_of(with_threshold, THRESHOLD) > 2 * share_of(without, THRESHOLD)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_a_run_without_an_epoch_still_gives_a_picture(tmp_path):
    assert learning_curve({}, tmp_path / "a.png").stat().st_size > 1000


def test_values_that_are_not_finite_are_left_out(tmp_path):
    rows = {ENV_STEPS: [1, 2, 3], episode_return("train"): [1.0, float("nan"), float("inf")]}
    assert learning_curve(rows, tmp_path / "a.png").is_file()


def test_groups_of_seeds_are_drawn_in_their_colours(tmp_path):
    from gymlab.metrics.plots import COLOURS

    groups = {"ppo": [table(1.0), table(1.5)], "reinforce": [table(0.5), table(0.6, length=20)]}
    path = curves(groups, tmp_path / "a.png", threshold=30, title="CartPole-v1")
    assert share_of(path, COLOURS[0]) > 1e-4
    assert share_of(path, COLOURS[1]) > 1e-4
    assert share_of(path, COLOURS[3]) < 1e-5


def test_figures_of_others_are_marked(tmp_path):
    from gymlab.metrics.plots import THRESHOLD

    groups = {"ppo": [table(1.0)]}
    plain = share_of(curves(groups, tmp_path / "a.png"), THRESHOLD)
    marked = share_of(curves(groups, tmp_path / "b.png", marks={"others": (20, 10.0)}), THRESHOLD)
    assert marked > plain + 1e-4


@pytest.mark.parametrize(
    ("steps", "returns", "over"),
    [
        ([10, 20, 20], [None, 1.0, 2.0], "train/cnt/epoch"),
        ([10, 20, 30], [None, 1.0, 2.0], "train/cnt/env_steps"),
        ([10, 20, 20], [None, None, 2.0], "train/cnt/env_steps"),
        ([], [], "train/cnt/env_steps"),
    ],
)
def test_what_learns_without_the_environment_is_drawn_over_epochs(steps, returns, over):
    rows = {
        "train/cnt/env_steps": steps,
        "train/cnt/epoch": list(range(len(steps))),
        "val/roll/ep_rew/mean": returns,
    }
    assert progress([rows]) == over
    assert progress([rows, {}]) == "train/cnt/env_steps"


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, gymlab.metrics.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
