import numpy as np
import pytest

from gymlab.buffers.windows import Windows
from gymlab.errors import ConfigError


def allowed(windows, oldest, written):
    """Start positions by trying each record."""
    held_out = {
        record
        for block in range(written // windows.size + 1)
        if windows.is_held_out(block)
        for record in range(block * windows.size, (block + 1) * windows.size)
    }
    return [
        start
        for start in range(oldest, written - windows.size + 1)
        if not held_out & set(range(start, start + windows.size))
    ]


@pytest.mark.parametrize("every", [0, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_ranks_number_exactly_the_allowed_starts(size, every):
    windows = Windows(size, every)
    for oldest in range(0, 3 * windows.period + 2, 2):
        for written in range(oldest, oldest + 3 * windows.period + size):
            low = windows.rank(np.array(oldest))
            count = windows.rank(np.array(max(oldest, written - size + 1))) - low
            found = windows.start(low + np.arange(count)).tolist()
            assert found == allowed(windows, oldest, written)
            assert windows.least_starts(written - oldest) <= len(found)


def test_the_least_number_of_starts_is_reached_at_some_place():
    windows = Windows(4, 3)
    for records in range(40):
        counts = [len(allowed(windows, oldest, oldest + records)) for oldest in range(windows.period)]
        assert min(counts) == windows.least_starts(records)


def test_held_out_blocks_that_are_whole():
    windows = Windows(3, 4)
    assert windows.held_out(0, 2) == []
    assert windows.held_out(0, 3) == [0]
    assert windows.held_out(0, 27) == [0, 12, 24]
    assert windows.held_out(1, 27) == [12, 24]
    assert windows.held_out(12, 26) == [12]
    assert Windows(3).held_out(0, 100) == []


def test_a_share_becomes_one_block_in_so_many():
    assert Windows.holding_out(65, 0.02).every == 50
    assert Windows.holding_out(65, 0.0).every == 0
    for share in (-0.1, 0.6, 1.0):
        with pytest.raises(ConfigError, match="held_out"):
            Windows.holding_out(65, share)
