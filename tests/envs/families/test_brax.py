import sys
import warnings

import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.engine.state import decode, encode
from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of
from gymlab.errors import ConfigError, EnvironmentFailure, NonFiniteError, NotInstalled


def test_without_brax_the_error_is_the_pip_line(monkeypatch, config, seeds):
    for module in ("brax", "brax.envs"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalled, match=r"Run: pip install 'gymlab\[brax\]'$"):
        make_vector(config("brax/inverted_pendulum"), 2, seeds)


@pytest.fixture
def walk(config, seeds):
    pytest.importorskip("brax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import brax_walk  # noqa: F401

    def make(count=2, purpose="train", seeds=seeds, **fields):
        return make_vector(config("brax/walk", **fields), count, seeds, purpose=purpose)

    return make


def actions(*values):
    return np.array(values, dtype=np.float32)[:, None]


def test_a_step_is_the_environments_own(walk):
    vector = walk()
    assert (vector.backend, vector.render_fps) == ("native", 20.0)
    assert (vector.observation_space.shape, vector.action_space.low[0], vector.action_space.high[0]) == ((1,), -1, 1)
    first = vector.reset().copy()
    assert np.all(np.abs(first) <= 1)
    assert first[0] != first[1]
    step = vector.step(actions(1, -1))
    np.testing.assert_array_equal(step.observation, first + actions(0.5, -0.5))
    np.testing.assert_array_equal(step.reward, 1 - np.abs(step.observation[:, 0]))
    assert not step.ended.any()
    assert step.final_observation is None


def test_a_terminated_episode_begins_anew_in_the_same_step(walk):
    vector = walk()
    start = vector.reset()[0, 0]
    steps, rewards, x = 0, 0.0, start
    while True:
        step = vector.step(actions(1, 0))
        steps, x = steps + 1, x + np.float32(0.5)
        rewards += 1 - abs(x)
        if step.ended[0]:
            break
    assert step.terminated.tolist() == [True, False]
    assert not step.truncated.any()
    np.testing.assert_allclose(step.final_observation[0], x)
    assert abs(step.observation[0, 0]) <= 1
    assert step.observation[0, 0] != start
    (episode,) = step.episodes
    assert (episode.env_index, episode.episode_index, episode.length, episode.terminated) == (0, 0, steps, True)
    assert episode.env_return == pytest.approx(rewards, abs=1e-5)
    assert vector.episode_counts.tolist() == [1, 0]
    after = vector.step(actions(0, 0))
    np.testing.assert_array_equal(after.observation[0], step.observation[0])


def test_the_time_limit_truncates(walk):
    vector = walk(max_episode_steps=3)
    first = vector.reset().copy()
    ends = [vector.step(actions(0, 0)).truncated.tolist() for _ in range(2)]
    step = vector.step(actions(0, 0))
    assert [*ends, step.truncated.tolist()] == [[False] * 2, [False] * 2, [True] * 2]
    assert not step.terminated.any()
    np.testing.assert_array_equal(step.final_observation, first)
    assert [episode.length for episode in step.episodes] == [3, 3]
    assert [vector.step(actions(0, 0)).ended.any() for _ in range(3)] == [False, False, True]


def test_a_repeated_action_stops_at_the_end_of_the_episode(walk):
    vector = walk(frame_skip=4, max_episode_steps=6)
    first = vector.reset().copy()
    step = vector.step(actions(0.2, 0.2))
    visited = first + 0.1 * np.arange(1, 5, dtype=np.float32)
    np.testing.assert_allclose(step.observation[:, 0], visited[:, -1], rtol=1e-6)
    np.testing.assert_allclose(step.reward, (1 - np.abs(visited)).sum(axis=1), atol=1e-5)
    step = vector.step(actions(0.2, 0.2))
    # Two of the limit's six steps were left.
    np.testing.assert_allclose(step.final_observation, first + 0.6, rtol=1e-5, atol=1e-6)
    assert step.truncated.all()
    assert [episode.length for episode in step.episodes] == [2, 2]


def test_episodes_follow_from_the_seed_the_purpose_and_their_number(walk):
    first = walk().reset().copy()
    np.testing.assert_array_equal(walk().reset(), first)
    assert not np.array_equal(walk(purpose="val").reset(), first)
    vector = walk()
    vector.reset()
    assert not np.array_equal(vector.reset(), first)
    np.testing.assert_array_equal(vector.reset(SeedTree(7)), first)


def test_a_saved_state_goes_on_exactly(walk):
    vector, generator = walk(3, max_episode_steps=7), np.random.default_rng(0)
    moves = generator.uniform(-1, 1, (20, 3, 1)).astype(np.float32)
    vector.reset()
    for move in moves[:10]:
        vector.step(move)
    tensors = {}
    tree = encode(vector.get_state(), "envs", tensors)
    other = walk(3, max_episode_steps=7)
    other.set_state(decode(tree, tensors))
    np.testing.assert_array_equal(other.observation, vector.observation)
    for move in moves[10:]:
        ours, theirs = vector.step(move), other.step(move)
        np.testing.assert_array_equal(ours.observation, theirs.observation)
        assert ours.episodes == theirs.episodes
    with pytest.raises(ConfigError, match="3 environments, this one 2"):
        walk().set_state(vector.get_state())
    saved = vector.get_state()
    saved["simulation"].popitem()
    with pytest.raises(ConfigError, match="does not fit this version of Brax"):
        other.set_state(saved)


def test_a_vector_that_never_began_can_be_saved(walk):
    vector = walk()
    vector.set_state(walk().get_state())
    assert vector.reset().shape == (2, 1)


def test_a_nan_is_told(walk):
    vector = walk()
    vector.reset()
    with pytest.raises(NonFiniteError, match="brax/walk returned a reward"):
        vector.step(actions(0, np.nan))


def test_a_single_environment_repeats_itself(walk, config, seeds):
    walk()
    single = make_env(config("brax/walk"), seeds=seeds)
    first, _ = single.reset()
    moved, reward, terminated, truncated, _ = single.step(np.array([1.0], dtype=np.float32))
    np.testing.assert_array_equal(moved, first + np.float32(0.5))
    assert (reward, terminated, truncated) == (pytest.approx(1 - abs(moved[0])), False, False)
    again, _ = make_env(config("brax/walk"), seeds=seeds).reset()
    np.testing.assert_array_equal(again, first)
    assert single.reset()[0] != first


def test_names_and_arguments(config, seeds):
    pytest.importorskip("brax")
    family = family_of("brax/ant")
    assert family.resolve("brax/inverted-pendulum") == "brax/inverted_pendulum"
    assert "brax/ant" in family.ids()
    assert "brax/fast" not in family.ids()
    with pytest.raises(EnvironmentFailure, match="brax/inverted_pendulum"):
        family.resolve("brax/inverted_pendulums")
    with pytest.raises(ConfigError, match=r"backend of brax/ant is 'sprint'.*spring"):
        make_vector(config("brax/ant", env_kwargs={"backend": "sprint"}), 1, seeds)
    with pytest.raises(ConfigError, match="does not take env_kwargs"):
        make_vector(config("brax/ant", env_kwargs={"legs": 5}), 1, seeds)
    with pytest.raises(ConfigError, match="async is not possible for brax/ant"):
        make_vector(config("brax/ant", vectorization_mode="async"), 1, seeds)


def test_wrappers_are_for_single_environments(walk):
    assert walk(frame_stack=2, vectorization_mode="sync").backend == "sync"
    with pytest.raises(ConfigError, match="frame_stack works on single environments"):
        walk(frame_stack=2, vectorization_mode="native")


def test_physics_in_a_vector_and_alone_are_the_same_and_can_be_seen(config, seeds):
    pytest.importorskip("brax")
    fields = config("brax/inverted_pendulum", env_kwargs={"backend": "spring"}, render_mode="rgb_array")
    vector = make_vector(fields.model_copy(update={"render_mode": None}), 2, seeds)
    alone = make_env(fields, seeds=seeds)
    inner = alone.unwrapped
    vector.reset()
    import jax

    # Both go on from the state of row 1.
    inner._state = jax.tree.map(lambda leaf: leaf[1], vector._open.state)
    for move in (0.5, -1.0, 0.25):
        step = vector.step(actions(0, move))
        observation, reward, terminated, _, _ = inner.step(np.array([move], dtype=np.float32))
        np.testing.assert_allclose(step.observation[1], observation, rtol=1e-4, atol=1e-5)
        assert (step.reward[1], step.terminated[1]) == (reward, terminated)
    picture = alone.render()
    alone.close()
    assert (picture.shape, picture.dtype) == ((240, 320, 3), np.uint8)
    assert len(np.unique(picture)) > 10
