"""Reading on from a cache gives what reading everything at once gives, and nothing looks ahead."""

import pytest
import torch

from gymlab.components.causal_transformer import CausalTransformer


@pytest.fixture
def transformer():
    torch.manual_seed(0)
    return CausalTransformer(width=16, layers=2, heads=4, most_tokens=12).eval()


@pytest.mark.parametrize("pieces", [(1,) * 12, (5, 1, 1, 3, 2), (12,), (3, 3, 3)])
def test_piece_by_piece_is_all_at_once(transformer, pieces):
    x = torch.randn(3, sum(pieces), 16)
    cache, found = transformer.empty(3), []
    for part in x.split(pieces, dim=1):
        outputs, cache = transformer.go_on(part, cache)
        found.append(outputs)
    with torch.no_grad():
        assert torch.allclose(torch.cat(found, dim=1), transformer(x), atol=1e-5)
    assert cache.length == sum(pieces)
    assert cache.room == 12 - sum(pieces)


def test_no_output_sees_a_later_token(transformer):
    x = torch.randn(2, 8, 16)
    changed = x.clone()
    changed[:, 5] = torch.randn(2, 16)
    with torch.no_grad():
        before, after = transformer(x), transformer(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert ((before - after)[:, 5:].abs().amax(-1) > 1e-4).all()


def test_a_copied_cache_is_not_written_to(transformer):
    _, cache = transformer.go_on(torch.randn(1, 4, 16), transformer.empty(1))
    kept, x = cache.copy(), torch.randn(1, 1, 16)
    first, _ = transformer.go_on(x, kept)
    transformer.go_on(torch.randn(1, 1, 16), cache)
    again, _ = transformer.go_on(x, kept)
    assert torch.equal(first, again)
