"""Every peer that is installed trains a small setting in a worker of its own."""

import pytest

from gymlab.bench.launch import run_worker, training_job
from gymlab.bench.settings import MODULES, REFERENCE, Contender, Setting, installed

TINY = Setting("tiny", 2, 16, 1, 32)


def skip_unless_installed(library):
    if not installed(library):
        pytest.skip(f"{library} is an extra that is not installed here")


@pytest.mark.parametrize("library", [name for name in MODULES if name != "gymlab"])
def test_a_peer_gives_its_rate(library):
    skip_unless_installed(library)
    answer = run_worker(training_job(Contender(library, library), TINY, 10 * TINY.rollout, seed=0), timeout=120)
    # Ten cycles and a mark before the first; the first two are the warm-up.
    assert answer["env_steps"] in {8 * TINY.rollout, 7 * TINY.rollout}
    assert answer["steps_per_second"] == pytest.approx(answer["env_steps"] / answer["seconds"])
    assert answer["steps_per_cpu_second"] > 0


def test_the_reference_can_be_cut_short():
    skip_unless_installed(REFERENCE)
    job = training_job(Contender(REFERENCE, REFERENCE), TINY, 10_000 * TINY.rollout, seed=0, max_seconds=0.05)
    answer = run_worker(job, timeout=60)
    assert TINY.rollout <= answer["env_steps"] < 1000 * TINY.rollout
    assert answer["env_steps"] % TINY.rollout == 0


def test_the_reference_notes_when_it_passes_a_threshold():
    skip_unless_installed(REFERENCE)
    from gymlab.bench.peers import sb3

    seconds, env_steps = sb3.time_to_threshold(TINY, 2000, 0, {}, 5.0, 2)
    assert 0 < seconds < 60
    assert env_steps % TINY.rollout == 0
    assert sb3.time_to_threshold(TINY, 200, 0, {}, 501.0, 2) is None


def test_the_reference_has_the_networks_of_the_comparison(tmp_path):
    skip_unless_installed(REFERENCE)
    from torch import nn

    from gymlab.bench.peers import sb3

    policy = sb3.build(TINY, 0, str(tmp_path)).policy
    for part in (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net):
        assert [type(layer) for layer in part] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
        assert [layer.out_features for layer in part if isinstance(layer, nn.Linear)] == [64, 64]
    optimizer = policy.optimizer.param_groups[0]
    assert type(policy.optimizer).__name__ == "Adam"
    assert (optimizer["lr"], optimizer["eps"]) == (3e-4, 1e-5)
