"""What is new in a frame: patches, losses and what the decoder leans on."""

import pytest
import torch
from delta_iris_helpers import ACTIONS, SHAPE, small

from gymlab.components.delta_tokenizer import DeltaTokenizer


@pytest.fixture
def tokenizer():
    torch.manual_seed(0)
    return DeltaTokenizer(small(), SHAPE, ACTIONS)


def test_patches_and_back(tokenizer):
    grid = torch.arange(2 * 4 * 4 * 4).view(2, 4, 4, 4)  # [N, features, 4, 4]
    patches = tokenizer.to_patches(grid)
    assert patches.shape == (2, 4, 2 * 2 * 4)
    assert torch.equal(tokenizer.to_grid(patches), grid)
    # The second word stands for the upper right corner: its pixels row by row, channels last.
    corner = [grid[0, :, row, column] for row in (0, 1) for column in (2, 3)]
    assert torch.equal(patches[0, 1], torch.cat(corner))


def test_losses_by_hand(tokenizer, monkeypatch):
    after = torch.zeros(2, *SHAPE)
    wrong = torch.zeros(2, *SHAPE)
    wrong[0] = 0.1
    wrong[0, 0, 0, 0] = 0.5
    monkeypatch.setattr(tokenizer, "decode", lambda *_: wrong)
    tokenizer.eval()
    losses, metrics = tokenizer.losses(torch.zeros(2, *SHAPE), torch.zeros(2, dtype=torch.int64), after)
    pixels = 3 * 16 * 16
    absolute, squared = 0.1 * (pixels - 1) + 0.5, 0.01 * (pixels - 1) + 0.25
    assert losses["absolute"].item() == pytest.approx(0.1 * absolute / (2 * pixels))
    assert losses["squared"].item() == pytest.approx(squared / (2 * pixels))
    assert losses["worst_pixel"].item() == pytest.approx(0.01 * 0.25 / 2)
    assert losses.keys() == {"absolute", "squared", "worst_pixel", "commitment"}
    assert metrics["psnr"].item() == pytest.approx((100 - 10 * torch.tensor(squared / pixels).log10().item()) / 2)


def test_words_and_frames_depend_on_everything_that_they_should(tokenizer):
    before, after = torch.rand(2, 2, *SHAPE, requires_grad=True)
    action = torch.tensor([0, 2])
    words = tokenizer.eval().encode(before, action, after)
    for value in (words.vectors, tokenizer.decode(before, action, words.vectors)):
        seen, plane = torch.autograd.grad(
            value.square().sum(), [before, tokenizer.action_plane.weight], retain_graph=True
        )
        assert (seen.flatten(1).abs().amax(1) > 0).all()
        assert plane.abs().amax(1).ne(0).tolist() == [True, False, True]
    shown = tokenizer.decode(before, action, words.vectors.detach())
    found = torch.autograd.grad(shown.square().sum(), [before, tokenizer.action_grid.weight])
    assert all(gradient.abs().max() > 0 for gradient in found)


def test_a_dreamt_frame_is_a_picture(tokenizer):
    tokens = torch.randint(0, 32, (5, 4))
    frame = tokenizer.eval().next_frame(torch.rand(5, *SHAPE), torch.zeros(5, dtype=torch.int64), tokens)
    assert frame.min() >= 0
    assert frame.max() <= 1
    assert torch.allclose(frame * 255, (frame * 255).round(), atol=1e-4)
