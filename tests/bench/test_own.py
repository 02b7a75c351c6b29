"""gymlab's own side of the benches, with a fraction of a second of training each."""

import itertools

import pytest

from gymlab.bench.launch import run_worker, training_job
from gymlab.bench.parts import Seconds, Stopwatch, time_parts
from gymlab.bench.peers import own
from gymlab.bench.settings import Contender, Setting
from gymlab.bench.step_rates import time_steps

TINY = Setting("tiny", 2, 16, 1, 32)


def test_a_worker_gives_gymlabs_rate():
    answer = run_worker(training_job(Contender("gymlab", "gymlab"), TINY, 10 * TINY.rollout, seed=0), timeout=120)
    assert answer["env_steps"] == 8 * TINY.rollout
    assert answer["steps_per_second"] == pytest.approx(answer["env_steps"] / answer["seconds"])
    assert answer["cpu_seconds"] > 0


def test_marks_are_whole_cycles_in_order():
    marks = own.train(TINY, 5 * TINY.rollout, 0, {}, None)
    assert [mark.env_steps for mark in marks] == [cycle * TINY.rollout for cycle in range(6)]
    assert all(later.wall > earlier.wall for earlier, later in itertools.pairwise(marks))


def test_the_config_is_that_of_the_comparison():
    import gymlab

    setting = Setting("x", 8, 32, 20, 256, gamma=0.98, gae_lambda=0.8, learning_rate=1e-3, linear=True)
    config = gymlab.resolve("CartPole-v1:ppo", **own.fields(setting, 3, 1024, {"update_backend": "eager"})).config
    assert (config.n_envs, config.n_steps, config.n_epochs, config.batch_size) == (8, 32, 20, 256)
    assert (config.gamma, config.gae_lambda, config.optimizer, config.seed) == (0.98, 0.8, "adam", 3)
    assert (config.policy_lr.start, config.policy_lr.end, config.clip_range.start) == (1e-3, 0.0, 0.2)
    assert (config.hidden_dims, config.activation, config.policy_kwargs) == ((64, 64), "tanh", {})
    assert (config.update_backend, config.eval_freq_epochs, config.max_env_steps) == ("eager", None, 1024)


def test_the_time_to_a_threshold_is_noted_and_the_workflow_left_as_it_was():
    from gymlab.engine.workflow import find_workflow

    collect = find_workflow("ppo").collect
    seconds, env_steps = own.time_to_threshold(TINY, 2048, 0, {}, 5.0, 2)
    assert 0 < seconds < 60
    assert env_steps % TINY.rollout == 0
    assert own.time_to_threshold(TINY, 64, 0, {}, 501.0, 2) is None
    assert find_workflow("ppo").collect is collect


def test_parts_and_the_share_of_the_bound():
    figures = time_parts(TINY, seed=0, options={}, seconds=0.01)
    parts = [figures[f"{part}_seconds"] for part in ("env", "policy", "update")]
    assert all(part > 0 for part in parts)
    assert figures["bound_steps_per_second"] == pytest.approx(TINY.rollout / sum(parts))
    assert figures["share"] == pytest.approx(figures["steps_per_second"] / figures["bound_steps_per_second"])
    assert figures["update_seconds_per_minibatch"] == figures["update_seconds"]


def test_only_the_parts_asked_for_are_timed():
    figures = time_parts(TINY, seed=0, options={"update_backend": "eager"}, seconds=0.01, measure=["update"])
    assert set(figures) == {"collect_seconds", "update_seconds", "update_seconds_per_minibatch"}


@pytest.mark.parametrize("backend", ["native", "sync", "gymnasium"])
def test_step_rates(backend):
    assert time_steps("CartPole-v1", 2, backend, seed=0, seconds=0.01)["steps_per_second"] > 100


def test_a_stopwatch_leaves_out_the_warm_up(monkeypatch):
    ticks = iter([Seconds(10.0, 5.0), Seconds(13.0, 6.0), Seconds(18.0, 8.0)])
    monkeypatch.setattr("gymlab.bench.parts.clock", lambda: next(ticks))
    stopwatch = Stopwatch(warmup=1)
    stopwatch.add(Seconds(0.0, 0.0))
    stopwatch.add(Seconds(10.0, 5.0))
    stopwatch.add(Seconds(13.0, 6.0))
    assert stopwatch.calls == 2
    assert stopwatch.mean == Seconds(4.0, 1.5)
