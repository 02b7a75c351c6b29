"""Records on their way."""

import numpy as np

from gymlab.buffers.batches import Records, last_records


def test_the_newest_records_of_every_environment_that_has_enough():
    """Environment 1 is reset in the second step, and one record of environment 0 comes apart from the others."""
    trajectory = [
        Records(np.array([0, 1]), {"reward": np.array([1.0, 10.0])}),
        Records(np.array([0]), {"reward": np.array([2.0])}),
        Records(np.array([0, 1]), {"reward": np.array([3.0, 20.0])}),
    ]
    assert last_records(trajectory, 2)["reward"].tolist() == [[2.0, 3.0], [10.0, 20.0]]
    assert last_records(trajectory, 3)["reward"].tolist() == [[1.0, 2.0, 3.0]]
    assert last_records(trajectory, 4) is None
