"""M: densities by hand, temperature, what is expected of what, and sizes of the paper."""

from __future__ import annotations

import math

import pytest
import torch

from gymlab.components.flat import count_parameters
from gymlab.components.mdn_rnn import MDNRNN, Mixture


def mixture(weights, mean, std) -> Mixture:
    return Mixture(torch.tensor(weights).log(), torch.tensor(mean), torch.tensor(std).log())


ONE = mixture([[0.5, 0.3, 0.2]], [[0.0, 1.0, -1.0]], [[1.0, 0.5, 2.0]])


def test_parameters_are_those_of_the_paper() -> None:
    assert count_parameters(MDNRNN(32, 3, 256)) == 422_368
    assert count_parameters(MDNRNN(64, 1, 512, predicts_end=True, sees_start=True)) == 1_678_785


def test_density_by_hand() -> None:
    assert ONE.nll(torch.tensor([0.3])).item() == pytest.approx(1.162103, abs=1e-6)
    assert math.exp(-ONE.nll(torch.tensor([0.3])).item()) == pytest.approx(0.312828, abs=1e-6)
    standard = mixture([[1.0]], [[0.0]], [[1.0]])
    assert standard.nll(torch.tensor([0.0])).item() == pytest.approx(0.918939, abs=1e-6)


def test_joint_and_per_dimension_mixtures_differ() -> None:
    target, mean, std = torch.tensor([0.3, -0.2]), [[0.0, 1.0], [0.0, -1.0]], [[1.0, 0.5], [1.0, 0.5]]
    assert mixture([[0.6, 0.4]], mean, std).nll(target).item() == pytest.approx(2.153683, abs=1e-6)
    assert mixture([[0.6, 0.4]] * 2, mean, std).nll(target).item() == pytest.approx(2.182770, abs=1e-6)


def test_the_density_agrees_with_torchs_own() -> None:
    torch.manual_seed(0)
    logits, mean, log_std, target = torch.randn(7, 3, 5), torch.randn(7, 3, 5), torch.randn(7, 3, 5), torch.randn(7, 3)
    normal = torch.distributions.Normal(mean, log_std.exp())
    theirs = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=logits), normal)
    torch.testing.assert_close(Mixture(logits, mean, log_std).nll(target), -theirs.log_prob(target).sum(-1))


@pytest.mark.parametrize(("log_std", "target"), [(-10.0, 0.3), (-10.0, 1e3), (0.0, 1e3)])
def test_extreme_values_stay_finite(log_std: float, target: float) -> None:
    mean = torch.zeros(1, 3, requires_grad=True)
    nll = Mixture(torch.tensor([[0.0, -50.0, 50.0]]), mean, torch.full((1, 3), log_std)).nll(torch.tensor([target]))
    nll.backward()
    assert torch.isfinite(nll)
    assert torch.isfinite(mean.grad).all()


@pytest.mark.parametrize(
    ("temperature", "weights"),
    [(1.0, (0.5, 0.3, 0.2)), (0.5, (0.657895, 0.236842, 0.105263)), (1.15, (0.477984, 0.306550, 0.215466))],
)
def test_weights_by_temperature(temperature: float, weights: tuple[float, ...]) -> None:
    torch.testing.assert_close(ONE.weights(temperature)[0], torch.tensor(weights), atol=1e-6, rtol=0)


def test_temperature_widens_by_its_root() -> None:
    torch.manual_seed(0)
    normal = Mixture(torch.zeros(200_000, 1, 1), torch.zeros(200_000, 1, 1), torch.zeros(200_000, 1, 1))
    assert normal.sample(1.15).std().item() == pytest.approx(1.072381, abs=6e-3)
    assert not normal.sample(0.0).any()


def test_samples_choose_components_by_their_weight() -> None:
    torch.manual_seed(0)
    far = mixture([[0.5, 0.3, 0.2]], [[0.0, 10.0, 20.0]], [[0.1, 0.1, 0.1]])
    many = Mixture(*(part.expand(50_000, 1, 3) for part in far))
    for temperature, weights in ((1.0, (0.5, 0.3, 0.2)), (0.5, (0.657895, 0.236842, 0.105263))):
        which = (many.sample(temperature)[:, 0] / 10).round()
        shares = [(which == k).float().mean().item() for k in range(3)]
        assert shares == pytest.approx(weights, abs=0.01)
    assert many.mode().eq(0).all()


def test_one_choice_of_a_joint_mixture_holds_for_all_dimensions() -> None:
    torch.manual_seed(0)
    joint = Mixture(
        torch.zeros(1000, 1, 2), torch.tensor([[0.0, 9.0]] * 3).expand(1000, 3, 2), torch.full((1000, 3, 2), -5.0)
    )
    drawn = joint.sample().round() / 9
    assert (drawn.std(1) < 1e-6).all()
    assert 0.4 < drawn.mean() < 0.6


def test_it_is_torchs_lstm() -> None:
    torch.manual_seed(0)
    model, theirs = MDNRNN(3, 2, 8), torch.nn.LSTM(5, 8)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.input_weight)
        theirs.weight_hh_l0.copy_(model.hidden_weight)
        theirs.bias_ih_l0.copy_(model.bias)
        theirs.bias_hh_l0.zero_()
    z, action = torch.randn(6, 4, 3), torch.randn(6, 4, 2)
    h, state = model(z, action, torch.zeros(6, 4, dtype=torch.bool), model.initial(4))
    expected, (last, cell) = theirs(torch.cat([z, action], -1))
    torch.testing.assert_close(h, expected)
    torch.testing.assert_close(state.h, last[0])
    torch.testing.assert_close(state.c, cell[0])


def test_steps_are_the_sequence_and_an_episode_begins_with_nothing() -> None:
    torch.manual_seed(0)
    model = MDNRNN(3, 2, 8, sees_start=True)
    z, action = torch.randn(7, 2, 3), torch.randn(7, 2, 2)
    is_first = torch.zeros(7, 2, dtype=torch.bool)
    is_first[0] = is_first[3, 1] = is_first[4, 0] = True
    h, _ = model(z, action, is_first, model.initial(2))
    state = model.initial(2)
    for t in range(7):
        state = model.step(z[t], action[t], is_first[t], state)
        torch.testing.assert_close(h[t], state.h)
    alone, _ = model(z[3:, 1:], action[3:, 1:], is_first[3:, 1:], model.initial(1))
    torch.testing.assert_close(h[3:, 1], alone[:, 0])


def test_the_next_step_is_what_is_expected() -> None:
    """A counter that the action stops: z[t + 1] = z[t] + a[t]; reward z[t + 1]; the end at 8."""
    torch.manual_seed(0)
    model = MDNRNN(1, 1, 32, components=2, predicts_reward=True, predicts_end=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def play(count: int) -> tuple[torch.Tensor, ...]:
        action = torch.randint(0, 2, (13, count, 1)).float()
        z = torch.cat([torch.zeros(1, count, 1), action[:-1].cumsum(0)]) / 4
        first = torch.zeros(13, count, dtype=torch.bool)
        first[0] = True
        return z, action, first, z[..., 0], z[..., 0] >= 2

    for _ in range(250):
        losses, _ = model.losses(*play(32), model.initial(32), end_weight=10.0)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
    z, action, first, reward, ends = play(64)
    h, _ = model(z, action, first, model.initial(64))
    expected = model.expect(h[:-1])
    assert (expected.mixture.mode() - z[1:]).abs().mean() < 0.05
    # Whoever expected z[t] again would be wrong by a quarter, every other time.
    assert (expected.mixture.mode() - z[:-1]).abs().mean() > 0.1
    assert (expected.reward - reward[1:]).abs().mean() < 0.06
    assert ((expected.end > 0) == ends[1:]).float().mean() > 0.95


def test_a_new_episode_is_not_expected_from_the_old_one() -> None:
    torch.manual_seed(0)
    model = MDNRNN(2, 1, 4, predicts_reward=True, predicts_end=True)
    z, action, reward = torch.randn(5, 1, 2), torch.randn(5, 1, 1), torch.randn(5, 1)
    is_first, is_end = torch.zeros(5, 1, dtype=torch.bool), torch.zeros(5, 1, dtype=torch.bool)
    is_first[3] = True
    before, _ = model.losses(z, action, is_first, reward, is_end, model.initial(1))
    # What step 3 sees must matter for step 4 alone; its own reward and flags for nothing.
    reward[3], is_end[3] = 100.0, True
    after, _ = model.losses(z, action, is_first, reward, is_end, model.initial(1))
    assert {name: loss.item() for name, loss in before.items()} == {name: loss.item() for name, loss in after.items()}


def test_windows_that_carry_the_state_are_the_long_sequence() -> None:
    """9 steps at once, and in windows of 4 and 5 of which the second begins with the record that the first expected."""
    torch.manual_seed(0)
    model = MDNRNN(2, 1, 4, predicts_reward=True, predicts_end=True, sees_start=True)
    z, action, reward = torch.randn(10, 3, 2), torch.randn(10, 3, 1), torch.randn(10, 3)
    is_first, is_end = torch.zeros(10, 3, dtype=torch.bool), torch.rand(10, 3) < 0.2
    is_first[0] = is_first[2, 1] = is_first[7, 2] = True
    data = (z, action, is_first, reward, is_end)
    whole, last = model.losses(*data, model.initial(3))
    first, between = model.losses(*(part[:5] for part in data), model.initial(3))
    second, end = model.losses(*(part[4:] for part in data), between)
    # A loss is a mean over the steps that have a successor in their episode: 11 of 12, and 14 of 15.
    for name in whole:
        expected = (11 * first[name] + 14 * second[name]) / 25
        torch.testing.assert_close(whole[name], expected)
    torch.testing.assert_close(end.h, last.h)
    torch.testing.assert_close(end.c, last.c)
    # Gradients end where windows do.
    assert not between.h.requires_grad
    assert not between.c.requires_grad


def test_ends_count_by_their_weight() -> None:
    model = MDNRNN(1, 1, 2, predicts_end=True)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
    zeros, none = torch.zeros(3, 1, 1), torch.zeros(3, 1, dtype=torch.bool)
    ends = torch.tensor([[False], [False], [True]])
    losses, _ = model.losses(zeros, zeros, none, zeros[..., 0], ends, model.initial(1), end_weight=10.0)
    assert losses["end"].item() == pytest.approx(math.log(2) * 11 / 2, rel=1e-5)


def test_a_dream_ends_where_the_end_is_likelier_than_not() -> None:
    model = MDNRNN(1, 1, 2, predicts_reward=True, predicts_end=True)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
        model.output.bias[-2] = 0.75
    none, zeros = torch.zeros(4, dtype=torch.bool), torch.zeros(4, 1)
    for logit, ends in ((-0.01, False), (0.01, True)):
        model.output.bias.data[-1] = logit
        dreamt = model.dream(zeros, zeros, none, model.initial(4), 0.0)
        assert dreamt.ends.tolist() == [ends] * 4
        assert dreamt.reward.tolist() == [0.75] * 4
        assert dreamt.z.tolist() == [[0.0]] * 4


def test_looking_ahead_sees_the_start_and_the_actions_alone() -> None:
    torch.manual_seed(0)
    model = MDNRNN(2, 1, 8)
    z, action, first = torch.randn(7, 3, 2), torch.randn(7, 3, 1), torch.zeros(7, 3, dtype=torch.bool)
    guesses = model.look_ahead(z, action, first, 4)
    assert guesses.shape == (3, 3, 2)
    changed = z.clone()
    changed[4:] = 0
    torch.testing.assert_close(model.look_ahead(changed, action, first, 4), guesses)
    h, _ = model(z[:4], action[:4], first[:4], model.initial(3))
    torch.testing.assert_close(guesses[0], model.expect(h[3]).mixture.mode())
    other = action.clone()
    other[4] += 1
    ahead = model.look_ahead(z, other, first, 4)
    torch.testing.assert_close(ahead[0], guesses[0])
    assert not torch.allclose(ahead[1], guesses[1])
    torch.manual_seed(3)
    drawn = model.look_ahead(z, action, first, 4, temperature=1.0)
    torch.manual_seed(3)
    torch.testing.assert_close(drawn[0], model.expect(h[3]).mixture.sample(1.0))
    assert not torch.allclose(drawn[0], guesses[0])


def test_a_dream_begins_behind_what_it_has_seen() -> None:
    torch.manual_seed(0)
    model = MDNRNN(2, 1, 8, sees_start=True)
    z, action = torch.randn(5, 3, 2), torch.randn(5, 3, 1)
    first = torch.zeros(5, 3, dtype=torch.bool)
    first[0] = True
    seen, hidden, begins = model.fall_asleep(z, action, first)
    torch.testing.assert_close(hidden.h, model(z[:4], action[:4], first[:4], model.initial(3))[0][-1])
    assert seen is z[-1] or torch.equal(seen, z[-1])
    assert not begins.any()
    # An episode's first observation is seen with an empty memory.
    _, empty, begins = model.fall_asleep(z[:1], action[:1], first[:1])
    assert begins.all()
    assert not empty.h.any()
    # What is drawn follows from the generator alone.
    ways = [model.dream(seen, action[0], begins, hidden, 1.0, torch.Generator().manual_seed(s)).z for s in (1, 1, 2)]
    assert torch.equal(ways[0], ways[1])
    assert not torch.equal(ways[0], ways[2])
