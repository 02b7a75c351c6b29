"""From a config to environments: the order of wrappers, the choice of a backend, messages that say what would be right."""

import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.engine.seeding import SeedTree
from gymlab.envs import build, make_env, make_vector, step_rate
from gymlab.envs.pace import Pace
from gymlab.errors import ConfigError, EnvironmentFailure


class Slow(Counting):
    def step(self, action):
        import time

        time.sleep(0.002)
        return super().step(action)


@pytest.fixture
def slow():
    gym.register("Slow-v0", entry_point=Slow)
    yield "Slow-v0"
    gym.registry.pop("Slow-v0")


def backend_of(config, count=2, cores=2, monkeypatch=None, **kwargs):
    monkeypatch.setattr(build, "cores", lambda: cores)
    with make_vector(config, count, SeedTree(0), **kwargs) as vector:
        return vector.backend, vector.pace


def test_auto_takes_native_where_there_is_one(config, monkeypatch):
    assert backend_of(config(), monkeypatch=monkeypatch) == ("native", None)


def test_auto_steps_quick_environments_in_this_process(config, monkeypatch):
    backend, pace = backend_of(config("Counting-v0"), monkeypatch=monkeypatch)
    assert backend == "sync"
    assert 0 < pace.seconds < 0.5e-3


def test_auto_gives_slow_environments_processes_of_their_own(config, slow, monkeypatch):
    backend, pace = backend_of(config(slow), monkeypatch=monkeypatch)
    assert backend == "async"
    assert pace.seconds >= 0.002


def test_auto_stays_in_this_process_with_one_environment(config, slow, monkeypatch):
    assert backend_of(config(slow), count=1, monkeypatch=monkeypatch) == ("sync", None)


@pytest.mark.parametrize(("computing", "backend"), [(1.0, "sync"), (0.1, "async")])
def test_a_single_core_is_shared_by_environments_that_wait(config, slow, computing, backend, monkeypatch):
    monkeypatch.setattr(build, "measure_apart", lambda plan, timeout: Pace(0.002, computing))
    assert backend_of(config(slow), cores=1, monkeypatch=monkeypatch)[0] == backend


def test_a_stored_choice_is_reused_without_measuring(config, slow, monkeypatch):
    monkeypatch.setattr(build, "call_apart", lambda *arguments: pytest.fail("measured again"))
    assert backend_of(config(slow), monkeypatch=monkeypatch, backend="sync") == ("sync", None)


def test_an_unknown_backend_is_refused(config):
    with pytest.raises(ConfigError, match="async"):
        make_vector(config(), 2, SeedTree(0), backend="asink")


def test_the_config_may_choose(config, monkeypatch):
    assert backend_of(config(vectorization_mode="sync"), monkeypatch=monkeypatch)[0] == "sync"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"env_id": "Blackjack-v1"}, "no vector version"),
        ({"frame_stack": 2}, "frame_stack"),
        ({"frame_skip": 2}, "frame_skip"),
        ({"obs_type": "rgb"}, "rgb"),
        ({"env_wrappers": ({"id": "CartPoleV1_RewardShaper"},)}, "env_wrappers"),
        ({"env_kwargs": {"wheels": 4}}, "wheels"),
    ],
)
def test_native_where_it_cannot_be_says_why(config, fields, reason):
    with pytest.raises(ConfigError, match=reason):
        make_vector(config(**{"vectorization_mode": "native", **fields}), 2, SeedTree(0))


def test_measuring_leaves_the_seeds_of_training_alone(config, slow, monkeypatch):
    monkeypatch.setattr(build, "cores", lambda: 2)
    first = [
        make_vector(config("Blackjack-v1"), 2, SeedTree(0), backend=backend).reset().copy()
        for backend in ("auto", "sync")
    ]
    np.testing.assert_array_equal(*first)


def test_order_of_the_stack(config):
    env = make_env(
        config(
            frame_skip=2,
            obs_type="rgb",
            env_wrappers=({"ActionRewardShaper": {"rewards": [0, 0]}},),
            grayscale_obs=True,
            resize_obs=(32, 48),
            frame_stack=4,
        )
    )
    names = []
    layer = env
    while isinstance(layer, gym.Wrapper):
        names.append(type(layer).__name__)
        layer = layer.env
    assert names == [
        "SubEnv",
        "FrameStack",
        "ImageObservation",
        "ActionRewardShaper",
        "PixelObservationWrapper",
        "FrameSkipWrapper",
        "EpisodeRecorder",
    ]
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 32, 48), np.uint8)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    env.close()


def test_pixels_reach_the_vector_env(config):
    fields = {"obs_type": "rgb", "grayscale_obs": True, "resize_obs": (84, 84), "frame_stack": 2}
    vector = make_vector(config(**fields), 2, SeedTree(0), backend="sync")
    first = vector.reset().copy()
    assert first.shape == (2, 2, 84, 84)
    assert vector.is_rgb_env()
    assert not make_vector(config(), 2, SeedTree(0)).is_rgb_env()
    step = vector.step(np.array([0, 1]))
    # The newest frame comes last; the one before it is the first frame.
    np.testing.assert_array_equal(step.observation[:, 0], first[:, 1])
    for _ in range(4):
        step = vector.step(np.array([0, 1]))
    assert not np.array_equal(step.observation[:, 1], first[:, 1])
    vector.close()


def test_image_environments_come_channels_first_without_being_asked(config):
    env = make_env(config("CarRacing-v3"))
    assert env.observation_space.shape == (3, 96, 96)
    env.close()


def test_make_env_without_seeds_takes_the_seed_it_is_given(config):
    env = make_env(config())
    first, _ = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    other, _ = env.reset(seed=6)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_dict_observations_are_flattened(config):
    env = make_env(config("Blackjack-v1"))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.shape == (32 + 11 + 2,)
    assert isinstance(env.raw_observation_space, gym.spaces.Tuple)
    assert observation.sum() == 3


def test_obs_types_of_atari_are_refused_elsewhere(config):
    with pytest.raises(ConfigError, match="Atari only"):
        make_env(config(obs_type="ram"))


def test_grayscale_of_a_vector_is_refused(config):
    with pytest.raises(ConfigError, match="obs_type: rgb"):
        make_env(config(grayscale_obs=True))


def test_a_window_without_a_display_is_refused(config, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(build.sys, "platform", "linux")
    with pytest.raises(EnvironmentFailure, match="no display"):
        make_env(config(), render_mode="human")


def test_step_rate_counts_all_environments(config):
    vector = make_vector(config(), 8, SeedTree(0))
    assert step_rate(vector, seconds=0.05) > 1000


def test_closing_one_rendering_environment_leaves_another_alone(config):
    pixels = config(obs_type="rgb", resize_obs=(16, 16))
    training = make_vector(pixels, 1, SeedTree(0), backend="sync")
    first = training.reset().copy()
    for vector in (
        make_vector(pixels, 1, SeedTree(0), backend="sync"),
        make_vector(config(), 1, SeedTree(0), render_mode="rgb_array"),
    ):
        vector.reset()
        vector.render()
        vector.close()
    for _ in range(8):
        step = training.step(np.array([1]))
    assert step.observation.shape == first.shape
    assert not np.array_equal(step.observation, first)
    training.close()
