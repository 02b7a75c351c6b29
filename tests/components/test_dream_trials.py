"""Dreams as one batch: each returns what it would alone, however many end before it."""

from __future__ import annotations

import torch
from gymnasium import spaces

from gymlab.components.dream_trials import dream_returns
from gymlab.components.linear_controllers import LinearControllers, action_map
from gymlab.components.mdn_rnn import MDNRNN, Dreamt, Hidden


class Countdown:
    """A world of one number that gets smaller by the controller's weight; at 0 it ends. The memory counts the steps."""

    rows: list[int]

    def __init__(self) -> None:
        self.rows = []

    def initial(self, count: int) -> Hidden:
        return Hidden(torch.zeros(count, 1), torch.zeros(count, 1))

    def dream(self, z, action, is_first, state, temperature) -> Dreamt:
        self.rows.append(len(z))
        assert (is_first == (state.h[:, 0] == 0)).all()
        z = z - action
        return Dreamt(z, torch.full((len(z),), 2.0), z[:, 0] <= 1e-6, Hidden(state.h + 1, state.c))


def parts():
    actions = action_map(spaces.Box(-1, 1, (1,)), "auto", (0, 1, 2), 0.0, 0.0)
    return LinearControllers(1, 1, bias=False), actions


def test_a_batch_gets_smaller_and_returns_stay_with_their_dreams() -> None:
    controllers, actions = parts()
    world, starts = Countdown(), torch.tensor([[1.0], [5.0], [2.0], [9.0]])
    # tanh(20 x 1) = 1: every controller takes 1 off.
    options = {"features": lambda z, hidden: torch.ones(len(z), 1), "temperature": 1.0, "steps": 7}
    returns = dream_returns(world, controllers, actions, torch.full((4, 1), 20.0), starts, **options)
    assert returns.tolist() == [2.0, 10.0, 4.0, 14.0]
    assert world.rows == [4, 3, 2, 2, 2, 1, 1]


def test_each_dream_is_acted_in_by_its_own_controller() -> None:
    controllers, actions = parts()
    world, weights = Countdown(), torch.tensor([[20.0], [0.0], [0.549306]])  # tanh: 1, 0, 1/2
    options = {"features": lambda z, hidden: torch.ones(len(z), 1), "temperature": 1.0, "steps": 10}
    assert dream_returns(world, controllers, actions, weights, torch.ones(3, 1), **options).tolist() == [2, 20, 4]


def test_without_chance_many_are_as_one() -> None:
    torch.manual_seed(0)
    model = MDNRNN(3, 1, 8, predicts_reward=True, predicts_end=True)
    controllers, actions = LinearControllers(11, 1), parts()[1]
    weights, z = torch.randn(16, controllers.size), torch.randn(16, 3)

    def returns(rows: slice) -> torch.Tensor:
        options = {"features": lambda z, hidden: torch.cat([z, hidden.h], -1), "temperature": 0.0, "steps": 6}
        return dream_returns(model, controllers, actions, weights[rows], z[rows], **options)

    alone = torch.cat([returns(slice(row, row + 1)) for row in range(16)])
    assert alone.unique().numel() > 8
    torch.testing.assert_close(returns(slice(None)), alone, rtol=1e-4, atol=1e-5)
