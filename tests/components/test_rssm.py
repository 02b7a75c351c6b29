"""The recurrent model: whole sequences and single steps agree, episodes are apart, sizes are those of the paper."""

from __future__ import annotations

import pytest
import torch

from gymlab.components.latents import CategoricalLatent
from gymlab.components.normed_layers import NormSiLU, RMSNorm
from gymlab.components.rssm import RSSM, BlockGRU, Cell, KerasGRU, NormedGRU, State
from gymlab.errors import ConfigError

DETER, ACTION, EMBEDDING, HIDDEN = 32, 3, 7, 8


def model(cell: str = "block_gru") -> RSSM:
    torch.manual_seed(0)
    latent = CategoricalLatent(4, 3, unimix=0.01)
    normed = cell == "block_gru"
    sizes = (DETER, latent.size, ACTION, HIDDEN)
    made: Cell
    if normed:
        made = BlockGRU(*sizes, blocks=4)
    elif cell == "keras_gru":
        made = KerasGRU(*sizes)
    else:
        made = NormedGRU(*sizes, normed=cell != "gru", bias=cell != "layer_norm_gru")
    return RSSM(made, latent, EMBEDDING, HIDDEN, prior_layers=2, normed=normed)


def sequence(length: int = 6, count: int = 2):
    generator = torch.Generator().manual_seed(1)
    embedding = torch.randn(length, count, EMBEDDING, generator=generator)
    actions = torch.randn(length, count, ACTION, generator=generator)
    noise = torch.rand(length, count, 1, 4, generator=generator)
    is_first = torch.zeros(length, count, dtype=torch.bool)
    is_first[3:4, 0] = True
    return embedding, actions, is_first, noise


@pytest.mark.parametrize("cell", ["block_gru", "biased_layer_norm_gru", "layer_norm_gru", "keras_gru", "gru"])
def test_step_by_step_is_the_whole_sequence_across_an_episodes_end(cell: str) -> None:
    rssm = model(cell)
    embedding, actions, is_first, noise = sequence()
    states, parameters = rssm.observe(embedding, actions, is_first, rssm.initial(2), noise)
    state = rssm.initial(2)
    for t in range(len(embedding)):
        row = slice(t, t + 1)
        one, logits = rssm.observe(embedding[row], actions[row], is_first[row], state, noise[row])
        state = State(one.deter[0], one.stoch[0])
        torch.testing.assert_close(state.deter, states.deter[t])
        torch.testing.assert_close(state.stoch, states.stoch[t])
        torch.testing.assert_close(logits[0], parameters[t])


def test_what_came_before_an_episode_does_not_reach_it() -> None:
    rssm = model()
    embedding, actions, is_first, noise = sequence()
    other, other_actions = embedding.clone(), actions.clone()
    other[:3] += 1
    other_actions[:4] += 1  # the action at 3 led out of the old episode
    one, _ = rssm.observe(embedding, actions, is_first, rssm.initial(2), noise)
    two, _ = rssm.observe(other, other_actions, is_first, rssm.initial(2), noise)
    assert torch.equal(one.deter[3:, 0], two.deter[3:, 0])
    assert torch.equal(one.stoch[3:, 0], two.stoch[3:, 0])
    assert not torch.equal(one.deter[3:, 1], two.deter[3:, 1])


def test_the_dream_expects_what_the_prior_says() -> None:
    rssm = model()
    embedding, actions, is_first, noise = sequence(2)
    states, _ = rssm.observe(embedding, actions, is_first, rssm.initial(2), noise)
    before = State(states.deter[0], states.stoch[0])
    dreamt = rssm.dream(before, actions[1], noise[1])
    # The memory moves alike, seen or dreamt; only the latent comes from the prior.
    torch.testing.assert_close(dreamt.deter, states.deter[1])
    torch.testing.assert_close(dreamt.stoch, rssm.latent.sample(rssm.prior(states.deter[1]), noise[1]))


def test_gates_of_the_block_memory() -> None:
    cell = BlockGRU(16, 6, 2, 4, blocks=2)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
    deter = torch.randn(3, 16)
    moved = cell(deter, torch.randn(3, 6), cell.inputs(torch.randn(3, 2)))
    # update = sigmoid(-1), candidate = tanh(0)
    torch.testing.assert_close(moved, deter * (1 - 0.268941), atol=1e-5, rtol=0)
    with torch.no_grad():
        cell.gates_bias.view(2, 3, 8)[:, 2] = -1e4
    torch.testing.assert_close(cell(deter, torch.randn(3, 6), cell.inputs(torch.randn(3, 2))), deter)


def test_the_blocks_are_a_block_diagonal_matrix() -> None:
    torch.manual_seed(0)
    cell = BlockGRU(12, 5, 2, 4, blocks=3)
    deter, stoch, action = torch.randn(2, 12), torch.randn(2, 5), torch.randn(2, 2).clamp(-1, 1)
    shared = torch.cat([cell.from_deter(deter), cell.from_stoch(stoch), cell.from_action(action)], -1)
    mixed = []
    for block in range(3):
        weight = torch.cat([cell.mix_deter[block], cell.mix_inputs[block]])
        mixed.append(torch.cat([deter[:, 4 * block : 4 * block + 4], shared], -1) @ weight + cell.mix_bias[block])
    scale = RMSNorm(12)
    plain = torch.nn.functional.silu(scale(torch.cat(mixed, -1)))
    reset, candidate, update = [], [], []
    for block in range(3):
        gates = plain[:, 4 * block : 4 * block + 4] @ cell.gates[block] + cell.gates_bias[block]
        for parts, gate in zip((reset, candidate, update), gates.chunk(3, -1), strict=True):
            parts.append(gate)
    r, c, u = (torch.cat(parts, -1) for parts in (reset, candidate, update))
    new = torch.sigmoid(u - 1)
    expected = new * torch.tanh(torch.sigmoid(r) * c) + (1 - new) * deter
    torch.testing.assert_close(cell(deter, stoch, cell.inputs(action)), expected)


def test_the_gru_of_keras() -> None:
    """u = sigmoid(x U + h U'), r likewise, c = tanh(x C + b + r (h C' + b')), h' = u h + (1 - u) c."""
    torch.manual_seed(0)
    cell = KerasGRU(5, 4, 2, 3)
    with torch.no_grad():
        for bias in (cell.gru.bias_ih, cell.gru.bias_hh):
            bias.normal_()
    deter, stoch, action = torch.randn(2, 5), torch.randn(2, 4), torch.randn(2, 2)
    x = torch.nn.functional.elu(stoch @ cell.from_stoch.weight.t() + action @ cell.from_action.weight.t())
    inputs = (x @ cell.gru.weight_ih.t() + cell.gru.bias_ih).chunk(3, -1)
    recurrent = (deter @ cell.gru.weight_hh.t() + cell.gru.bias_hh).chunk(3, -1)
    reset, update = (torch.sigmoid(inputs[k] + recurrent[k]) for k in range(2))
    candidate = torch.tanh(inputs[2] + reset * recurrent[2])
    torch.testing.assert_close(
        cell(deter, stoch, cell.inputs(action)), update * deter + (1 - update) * candidate, atol=1e-6, rtol=1e-5
    )


def within_glorot(weight: torch.Tensor, inputs: int, outputs: int) -> bool:
    """Whether numbers are uniform within sqrt(6 / (inputs + outputs)), as far as so many can show it."""
    bound = (6 / (inputs + outputs)) ** 0.5
    spread = weight.detach().std().item() * 3**0.5
    return bool(weight.abs().max() <= bound) and spread == pytest.approx(bound, rel=0.1)


@pytest.mark.parametrize("cell", ["keras_gru", "biased_layer_norm_gru"])
def test_layers_of_the_first_versions_begin_as_keras_has_them(cell: str) -> None:
    """Torch's own start is uniform within 1 / sqrt(inputs), biases included."""
    rssm = model(cell)
    joint = torch.cat([rssm.cell.from_stoch.weight, rssm.cell.from_action.weight], 1)
    assert within_glorot(joint, 12 + ACTION, HIDDEN)
    assert within_glorot(rssm.prior_net[0].weight, DETER, HIDDEN)
    assert within_glorot(rssm.prior_net[-1].weight, HIDDEN, 12)
    assert within_glorot(rssm.posterior_out.weight, HIDDEN, 12)
    posterior = torch.cat([rssm.posterior_deter.t(), rssm.posterior_embedding], 1)
    assert within_glorot(posterior, DETER + EMBEDDING, HIDDEN)
    if cell == "keras_gru":
        assert within_glorot(rssm.cell.gru.weight_ih, HIDDEN, 3 * DETER)
        recurrent = rssm.cell.gru.weight_hh
        torch.testing.assert_close(recurrent.t() @ recurrent, torch.eye(DETER), atol=1e-5, rtol=0)
    else:
        assert within_glorot(rssm.cell.gates.weight, DETER + HIDDEN, 3 * DETER)
        assert rssm.cell.gates.bias.shape == (3 * DETER,)
    biases = [p for name, p in rssm.named_parameters() if "bias" in name]
    assert len(biases) > 4
    assert not any(bias.any() for bias in biases)


def test_actions_beyond_one_are_scaled_into_it() -> None:
    cell = BlockGRU(16, 6, 2, 4, blocks=2)
    torch.testing.assert_close(cell.inputs(torch.tensor([[7.0, -0.5]])), cell.inputs(torch.tensor([[1.0, -0.5]])))


def test_blocks_must_divide_the_memory() -> None:
    with pytest.raises(ConfigError, match="multiple of blocks"):
        BlockGRU(30, 6, 2, 4, blocks=8)


@pytest.mark.parametrize("blocks", [None, 3])
def test_norm_and_silu_in_one_are_both_in_a_row(blocks: int | None) -> None:
    torch.manual_seed(0)
    layer = NormSiLU(12, blocks).double()
    with torch.no_grad():
        layer.scale.uniform_(0.5, 2)
    shape = (5, 12) if blocks is None else (3, 5, 4)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    flat = x if blocks is None else x.transpose(0, 1).reshape(5, 12)
    scale = layer.scale.reshape(12)
    norm = flat / (flat.square().mean(-1, keepdim=True) + 1e-4).sqrt() * scale
    expected = norm * torch.sigmoid(norm)
    expected = expected if blocks is None else expected.reshape(5, 3, 4).transpose(0, 1)
    torch.testing.assert_close(layer(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
    assert torch.autograd.gradcheck(
        lambda x, scale: torch.func.functional_call(layer, {"scale": scale}, (x,)), (x, layer.scale)
    )
