"""Words of a codebook: straight through, moved by means alone, revived when nobody uses them."""

import math

import pytest
import torch

from gymlab.components.vector_quantizer import VectorQuantizer


def quantizer(size=8, dim=4, inputs=4, revival=0):
    torch.manual_seed(0)
    made = VectorQuantizer(size, dim, inputs, revival)
    for layer in (made.into, made.out_of):
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return made


def test_the_word_goes_forward_and_the_gradient_straight_through():
    made = quantizer().eval()
    x = torch.randn(3, 2, 4, requires_grad=True)
    words = made(x)
    assert torch.allclose(words.vectors, made.codebook[words.tokens], atol=1e-6)
    nearest = (torch.nn.functional.normalize(x, dim=-1) @ made.codebook.t()).argmax(-1)
    assert torch.equal(words.tokens, nearest)
    weights = torch.randn(3, 2, 4)
    z = torch.nn.functional.normalize(x, dim=-1)
    (straight,) = torch.autograd.grad((z * weights).sum(), x, retain_graph=True)
    (found,) = torch.autograd.grad((words.vectors * weights).sum(), x)
    assert torch.allclose(found, straight, atol=1e-6)


def test_the_codebook_has_no_parameters_and_only_training_moves_it():
    made = quantizer()
    assert {name for name, _ in made.named_parameters()} == {"into.weight", "into.bias", "out_of.weight", "out_of.bias"}
    before = made.codebook.clone()
    made.eval()(torch.randn(5, 2, 4))
    assert torch.equal(made.codebook, before)
    assert made.updates == 0
    made.train()(torch.randn(5, 2, 4))
    assert not torch.equal(made.codebook, before)
    assert torch.allclose(made.codebook.norm(dim=-1), torch.ones(8), atol=1e-6)


def test_a_word_moves_a_hundredth_of_the_way_to_the_mean_of_its_vectors():
    made = quantizer(size=2, dim=2, inputs=2)
    made.codebook.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    z = torch.tensor([[[0.6, 0.8]], [[0.8, -0.6]]])  # both are nearer to the first word; their mean is (0.7, 0.1)
    made.train()(z)
    mean = torch.tensor([0.7, 0.1]) / math.hypot(0.7, 0.1)
    moved = 0.99 * torch.tensor([1.0, 0.0]) + 0.01 * mean
    assert torch.allclose(made.codebook[0], moved / moved.norm(), atol=1e-6)
    assert torch.allclose(made.codebook[1], torch.tensor([-1.0, 0.0]))
    assert torch.allclose(made.frequencies, torch.tensor([0.98 * 0.5 + 0.02, 0.98 * 0.5]))


def test_the_codebook_begins_uniform_within_one_over_its_size():
    """Not of length 1, as published: 64 numbers of deviation 1 / (sqrt(3) 1024) have length 0.0045."""
    torch.manual_seed(0)
    codebook = VectorQuantizer(1024, 64, 8, 0).codebook
    assert codebook.abs().max() <= 1 / 1024
    assert codebook.max() > 0.99 / 1024
    assert codebook.min() < -0.99 / 1024
    assert codebook.std().item() == pytest.approx(1 / (math.sqrt(3) * 1024), rel=0.02)
    assert codebook.norm(dim=-1).mean().item() == pytest.approx(0.0045, abs=1e-4)


def test_the_first_update_by_hand():
    """Products 0.00036 and 0.00064: the second code is taken, and a hundredth of (0.6, 0.8) outweighs what it was."""
    made = quantizer(size=2, dim=2, inputs=2)
    made.codebook.copy_(torch.tensor([[0.0006, 0.0], [0.0, 0.0008]]))
    words = made.train()(torch.tensor([[[3.0, 4.0]]]))
    assert words.tokens.item() == 1
    # 0.99 (0, 0.0008) + 0.01 (0.6, 0.8) = (0.006, 0.008792), of length 0.0106442.
    assert torch.allclose(made.codebook[1], torch.tensor([0.563684, 0.825987]), atol=1e-5)
    # An unused code keeps its direction and gets length 1, too.
    assert torch.allclose(made.codebook[0], torch.tensor([1.0, 0.0]), atol=1e-6)


def test_the_first_update_moves_used_codes_onto_the_data():
    """512 vectors, 1,024 codes, 64 dimensions: codes of length 1 would have a cosine of 0.40 with their vectors after it."""
    torch.manual_seed(0)
    made = VectorQuantizer(1024, 64, 64, 0)
    torch.nn.init.eye_(made.into.weight)
    torch.nn.init.zeros_(made.into.bias)
    x = torch.nn.functional.normalize(torch.randn(128, 4, 64), dim=-1)
    tokens = made.train()(x).tokens
    assert (x * made.codebook[tokens]).sum(-1).mean() > 0.78


def test_the_commitment_draws_vectors_to_words():
    made = quantizer(size=2, dim=2, inputs=2).eval()
    made.codebook.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    words = made(torch.tensor([[[0.6, 0.8]]]))
    assert words.commitment.item() == pytest.approx((0.4**2 + 0.8**2) / 2)


def test_entropy_in_bits():
    made = quantizer(size=4)
    assert made.entropy.item() == pytest.approx(2)
    made.frequencies.copy_(torch.tensor([0.5, 0.5, 0.0, 0.0]))
    assert made.entropy.item() == pytest.approx(1)
    assert made.metrics()["perplexity"].item() == pytest.approx(2)
    assert made.metrics()["dead_share"].item() == pytest.approx(0.5)


@pytest.mark.parametrize(("young", "used", "revived"), [(10, 4, True), (0, 4, False), (0, 1, True)])
def test_dead_words_are_revived_while_young_or_collapsed(young, used, revived):
    """Of 32 words some are used: 4 make 2 bits, less than 5 - 2; one makes 0 bits, less than 1."""
    made = quantizer(size=32, dim=4, revival=young)
    made.frequencies.zero_()
    made.frequencies[:used] = 1 / used
    before = torch.nn.functional.normalize(made.codebook, dim=-1)
    made.codebook.copy_(before)
    x = before[:used].repeat(40, 1).unsqueeze(1)
    made.train()(x)
    changed = ((made.codebook[used:] - before[used:]).abs() > 1e-5).any(-1)
    assert changed.all() if revived else not changed.any()
    if revived:
        assert torch.allclose(made.frequencies[used:], torch.full((32 - used,), 1 / 32))
        # Every heir is a vector of the batch.
        assert torch.allclose((made.codebook[used:] @ before[:used].t()).amax(-1), torch.ones(32 - used), atol=1e-5)
