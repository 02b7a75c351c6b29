"""The gradient of a whole sequence, written out, is the one that autograd finds step by step."""

from __future__ import annotations

import pytest
import torch

from gymlab.components.latents import CategoricalLatent
from gymlab.components.rssm import RSSM, BlockGRU, State

LENGTH, COUNT, DETER, ACTION, EMBEDDING, HIDDEN = 6, 3, 32, 3, 7, 8


@pytest.fixture(params=[0.0, 0.1], ids=["plain", "unimix"])
def rssm(request: pytest.FixtureRequest) -> RSSM:
    torch.manual_seed(0)
    latent = CategoricalLatent(4, 3, request.param)
    cell = BlockGRU(DETER, latent.size, ACTION, HIDDEN, blocks=4)
    made = RSSM(cell, latent, EMBEDDING, HIDDEN, prior_layers=1, normed=True).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def outputs_and_gradients(rssm: RSSM, noise: torch.Tensor | None) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    names = ("embedding", "action", "deter", "stoch")
    shapes = ((LENGTH, COUNT, EMBEDDING), (LENGTH, COUNT, ACTION), (COUNT, DETER), (COUNT, rssm.latent.size))
    inputs = {name: random(*shape).requires_grad_() for name, shape in zip(names, shapes, strict=True)}
    is_first = torch.zeros(LENGTH, COUNT, dtype=torch.bool)
    is_first[0, 0] = is_first[3, 1] = True
    start = State(inputs["deter"], inputs["stoch"])
    states, logits = rssm.observe(inputs["embedding"], inputs["action"], is_first, start, noise)
    found = {"deters": states.deter, "stochs": states.stoch, "logits": logits}
    loss = sum((value * random(*value.shape)).tanh().sum() for value in found.values())
    learned = {name: p for name, p in rssm.named_parameters() if not name.startswith("prior")}
    wanted = inputs | learned
    gradients = torch.autograd.grad(loss, list(wanted.values()))
    return found | {f"d {name}": value for name, value in zip(wanted, gradients, strict=True)}


@pytest.mark.parametrize("sampled", [True, False])
def test_it_is_what_autograd_finds(rssm: RSSM, sampled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.rand(LENGTH, COUNT, 1, 4, dtype=torch.float64) if sampled else None
    written_out = outputs_and_gradients(rssm, noise)
    monkeypatch.setattr(RSSM, "_written_out", lambda self: None)
    by_autograd = outputs_and_gradients(rssm, noise)
    assert written_out.keys() == by_autograd.keys()
    for name, value in by_autograd.items():
        assert value.abs().max() > 0.01, name
        torch.testing.assert_close(written_out[name], value, msg=name)


def test_many_steps_of_a_dream_are_those_of_single_ones(rssm: RSSM) -> None:
    noise, action = torch.rand(LENGTH, COUNT, 1, 4, dtype=torch.float64), torch.randn(LENGTH, COUNT, ACTION).double()
    quick = plain = State(torch.randn(COUNT, DETER).double(), torch.rand(COUNT, rssm.latent.size).double())
    dream = rssm.dreamer()
    for t in range(LENGTH):
        quick, plain = dream(quick, action[t], noise[t]), rssm.dream(plain, action[t], noise[t])
        torch.testing.assert_close(quick.deter, plain.deter)
        torch.testing.assert_close(quick.stoch, plain.stoch)
    assert not quick.deter.requires_grad


def test_nothing_is_learned_without_gradients(rssm: RSSM) -> None:
    with torch.no_grad():
        states, _ = rssm.observe(
            torch.zeros(1, 2, EMBEDDING, dtype=torch.float64),
            torch.zeros(1, 2, ACTION, dtype=torch.float64),
            torch.ones(1, 2, dtype=torch.bool),
            State(torch.ones(2, DETER).double(), torch.ones(2, rssm.latent.size).double()),
            None,
        )
    assert not states.deter.requires_grad


def test_a_lower_precision_goes_step_by_step(rssm: RSSM) -> None:
    rssm = rssm.float()
    with torch.autocast("cpu", torch.bfloat16):
        states, logits = rssm.observe(
            torch.zeros(2, 2, EMBEDDING),
            torch.zeros(2, 2, ACTION),
            torch.zeros(2, 2, dtype=torch.bool),
            rssm.initial(2),
            None,
        )
    # What the memory keeps, and what the latent is drawn from, stay in full.
    assert logits.dtype == states.deter.dtype == torch.float32
    assert states.deter.isfinite().all()
