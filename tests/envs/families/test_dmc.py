"""The control suite: ids, order of the state, endings, pictures."""

import numpy as np
import pytest

from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of
from gymlab.envs.families.dmc import DmControlEnv
from gymlab.errors import ConfigError, EnvironmentFailure

pytest.importorskip("dm_control")


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("dmc/cartpole-swingup", "dmc/cartpole-swingup"),
        ("dmc/cup-catch", "dmc/ball_in_cup-catch"),
        ("dmc/ball-in-cup-catch", "dmc/ball_in_cup-catch"),
        ("dmc/humanoid_CMU-run", "dmc/humanoid_CMU-run"),
        ("dmc/cartpole-swingup-sparse", "dmc/cartpole-swingup_sparse"),
    ],
)
def test_ids(name, task):
    assert family_of(name).resolve(name) == task


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(EnvironmentFailure, match="dmc/cheetah-run"):
        family_of("dmc/cheetah-runn").resolve("dmc/cheetah-runn")


def test_the_state_is_in_the_order_of_the_suite(config):
    env = make_env(config("dmc/walker-walk"))
    observation, _ = env.reset(seed=3)
    assert observation.dtype == np.float32
    parts = env.unwrapped._environment.task.get_observation(env.unwrapped._environment.physics)
    assert list(parts) == ["orientations", "height", "velocity"]
    np.testing.assert_array_equal(observation[:14], parts["orientations"].astype(np.float32))
    assert observation[14] == np.float32(parts["height"])
    np.testing.assert_array_equal(observation[15:], parts["velocity"].astype(np.float32))


def test_episodes_differ_by_their_seed_alone(config):
    env = make_env(config("dmc/cup-catch"))
    first, second, again = (env.reset(seed=seed)[0] for seed in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    # All 63 bits of a seed count.
    assert not np.array_equal(env.reset(seed=2**40 + 1)[0], first)


def test_the_limit_of_1000_steps_is_a_truncation(config, seeds):
    with make_vector(config("dmc/cartpole-balance", frame_skip=50), 1, seeds, backend="sync") as vector:
        vector.reset()
        for _ in range(19):
            assert not vector.step(np.zeros((1, 1), np.float32)).ended[0]
        step = vector.step(np.zeros((1, 1), np.float32))
    assert step.truncated[0]
    assert not step.terminated[0]
    assert step.episodes[0].length == 20
    assert step.episodes[0].success is None
    assert 0 < step.episodes[0].env_return <= 1000


def test_a_discount_of_zero_terminates_and_one_truncates(monkeypatch):
    env = DmControlEnv("cartpole", "balance", {}, 0)
    env.reset(seed=0)
    task = env._environment.task
    monkeypatch.setattr(task, "get_termination", lambda physics: 0.0)
    assert env.step([0.0])[2:4] == (True, False)
    env.reset(seed=0)
    monkeypatch.setattr(task, "get_termination", lambda physics: 1.0)
    assert env.step([0.0])[2:4] == (False, True)


def test_bounds_of_actions(config):
    assert make_env(config("dmc/cheetah-run")).action_space.high.tolist() == [1.0] * 6
    free = make_env(config("dmc/lqr-lqr_2_1")).action_space
    assert (free.low[0], free.high[0]) == (-np.inf, np.inf)


def test_videos_play_at_the_speed_of_the_task(config):
    assert make_env(config("dmc/cartpole-swingup")).metadata["render_fps"] == 100


def test_wrong_arguments_are_named(config):
    with pytest.raises(ConfigError, match="height is 0"):
        make_env(config("dmc/cartpole-swingup", obs_type="rgb", env_kwargs={"height": 0}))
    with pytest.raises(ConfigError, match="wheels"):
        make_env(config("dmc/cartpole-swingup", env_kwargs={"wheels": 4}))


def test_an_open_episode_is_resumed(config, seeds):
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 2)).astype(np.float32)
    with make_vector(config("dmc/cup-catch"), 2, seeds, backend="sync") as first:
        first.reset()
        for row in actions[:20]:
            first.step(row)
        state = first.get_state()
        expected = [first.step(row).observation.copy() for row in actions[20:]]
    with make_vector(config("dmc/cup-catch"), 2, seeds, backend="sync") as second:
        second.set_state(state)
        for row, observation in zip(actions[20:], expected, strict=True):
            np.testing.assert_array_equal(second.step(row).observation, observation)


@pytest.fixture
def drawing():
    from gymlab.envs.gl import OFF, prepare_gl

    if prepare_gl(drawing=False) == OFF:
        pytest.skip("nothing draws here")


@pytest.mark.usefixtures("drawing")
def test_pictures_by_size_in_this_process_and_in_one_forked_after_it_has_drawn(config, seeds):
    pixels = config("dmc/cartpole-swingup", obs_type="rgb", env_kwargs={"height": 32, "width": 48})
    env = make_env(pixels, seeds=seeds)
    observation, _ = env.reset()
    assert observation.shape == (3, 32, 48)
    assert observation.std() > 5
    assert env.render().shape == (240, 320, 3)
    # Without LP_NUM_THREADS=0 the worker waits for ever for threads that only its parent has.
    with make_vector(pixels.model_copy(update={"env_step_timeout": 60.0}), 1, seeds, backend="async") as vector:
        np.testing.assert_array_equal(vector.reset()[0], observation)
    env.close()
