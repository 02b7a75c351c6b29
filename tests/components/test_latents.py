"""Latents: KL and its gradients, straight-through samples, the even share, by numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gymlab.components.latents import CategoricalLatent, GaussianLatent


def one_group(*logits: float) -> torch.Tensor:
    return torch.tensor(logits, dtype=torch.float64).requires_grad_()


def test_kl_and_its_gradients() -> None:
    latent = CategoricalLatent(1, 3)
    post, prior = one_group(1, 0, -1), one_group(0, 0.5, 0)
    kl = latent.kl(post, prior)
    assert kl.item() == pytest.approx(0.339617, abs=1e-6)
    kl.backward()
    assert prior.grad is not None and post.grad is not None
    assert prior.grad.tolist() == pytest.approx([-0.391172, 0.207134, 0.184038], abs=1e-6)
    assert post.grad.tolist() == pytest.approx([0.363989, -0.233189, -0.130801], abs=1e-6)


def test_the_even_share_bounds_probabilities_and_kl() -> None:
    latent = CategoricalLatent(1, 32, unimix=0.01)
    sure = torch.zeros(32, dtype=torch.float64)
    sure[0] = 100
    other = torch.zeros(32, dtype=torch.float64)
    other[1] = 100
    assert latent.probabilities(sure).min().item() == pytest.approx(0.01 / 32)
    assert latent.kl(sure, other).item() == pytest.approx(7.98, abs=0.01)
    assert CategoricalLatent(1, 64, 0.01).kl(torch.eye(64)[0] * 100, torch.eye(64)[1] * 100).item() == pytest.approx(
        8.67, abs=0.01
    )
    assert torch.isfinite(latent.entropy(sure))


def test_samples_are_one_hot_and_gradients_go_straight_through() -> None:
    latent = CategoricalLatent(1, 3)
    logits = one_group(1, 0, -1)
    sample = latent.sample(logits, latent.noise(1)[0].double())
    assert sorted(sample.tolist()) == [0.0, 0.0, 1.0]
    (sample @ torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([-0.282587, 0.140770, 0.141817], abs=1e-6)


def test_classes_come_as_often_as_they_are_likely() -> None:
    latent = CategoricalLatent(2, 3, unimix=0.1)
    logits = torch.tensor([[0.0, 2.0], [1.0, 0.0], [2.0, 0.0]]).flatten()  # [classes, groups]
    torch.manual_seed(0)
    samples = latent.sample(logits.expand(60_000, -1), latent.noise(60_000))
    frequency = samples.mean(0).view(3, 2)
    torch.testing.assert_close(frequency, latent.probabilities(logits), atol=0.01, rtol=0)
    assert (samples.view(-1, 3, 2).sum(1) == 1).all()


def test_noise_at_the_edges_still_chooses_one_class() -> None:
    latent = CategoricalLatent(1, 4)
    logits = torch.zeros(2, 4)
    nearly_one = np.nextafter(np.float32(1), np.float32(0))
    samples = latent.sample(logits, torch.tensor([0.0, nearly_one]).view(2, 1, 1))
    assert samples.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]


def test_without_noise_the_likeliest_class() -> None:
    latent = CategoricalLatent(2, 2)
    logits = torch.tensor([[3.0, 0.0], [0.0, 1.0]]).flatten()
    assert latent.sample(logits, None).view(2, 2).tolist() == [[1, 0], [0, 1]]


def test_packed_samples_come_back() -> None:
    latent = CategoricalLatent(5, 7)
    torch.manual_seed(0)
    samples = latent.sample(torch.randn(3, 35), latent.noise(3))
    packed = latent.pack(samples)
    assert packed.shape == (3, 5) and packed.dtype == torch.uint8
    torch.testing.assert_close(latent.unpack(packed), samples)


def test_gaussian_kl_entropy_and_samples() -> None:
    latent = GaussianLatent(1, least_std=0.0)
    raw = math.log(math.expm1(1.0))  # softplus(raw) = 1
    raw2 = math.log(math.expm1(2.0))
    p, q = torch.tensor([0.5, raw]), torch.tensor([0.0, raw2])
    assert latent.kl(p, q).item() == pytest.approx(math.log(2) + (1 + 0.25) / 8 - 0.5, abs=1e-6)
    assert latent.entropy(p).item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=1e-6)
    assert latent.sample(q, torch.tensor([1.5])).item() == pytest.approx(3.0, abs=1e-6)
    assert GaussianLatent(1).moments(torch.tensor([0.0, -100.0]))[1].item() == pytest.approx(0.1)
