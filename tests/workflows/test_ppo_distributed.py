import json

import numpy as np
import pytest
from distributed_training import train_on_one_process
from lightning_fabric import Fabric


@pytest.mark.filterwarnings("ignore")
def test_two_processes_learn_one_policy(tmp_path):
    """Gradients are averaged, so both end with the same weights though they saw different data."""
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    fabric.launch(train_on_one_process, str(tmp_path))
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["backend"] == second["backend"] == "eager"
    assert first["updates"] == second["updates"] > 0
    np.testing.assert_array_equal(first["weights"], second["weights"])
