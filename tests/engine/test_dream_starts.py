"""Dreams begin at resets, or in what was saved."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from gymlab.engine.agent import load_best
from gymlab.engine.dream_starts import from_episodes, make_dream
from gymlab.engine.saved_episodes import saved_episodes
from gymlab.errors import GymlabError


@pytest.fixture(scope="module")
def saved(dreaming_runs):
    run, agent = load_best("dreamer", runs_dir=dreaming_runs)
    return agent, saved_episodes(run, agent)


@pytest.mark.filterwarnings("ignore:.*A Box observation space")
@pytest.mark.parametrize("source", ["resets", "episodes"])
def test_gymnasium_takes_a_learned_world_model_for_an_environment(saved, source):
    agent, entries = saved

    def make(render_mode=None):
        return make_dream(agent, None if source == "resets" else from_episodes(entries, agent.action_space))

    env = make()
    env.spec = gym.envs.registration.EnvSpec("Dream-v0", entry_point=make)
    check_env(env, skip_render_check=True)
    assert env.max_steps == 12
    env.close()


def test_a_start_in_an_episode_has_seen_what_was_before(saved):
    agent, entries = saved
    starts = from_episodes(entries, agent.action_space)
    lengths = set()
    for seed in range(20):
        start = starts(np.random.default_rng(seed))
        lengths.add(len(start.observations))
        assert len(start.observations) == len(start.actions) == len(start.is_first)
        assert start.is_first.tolist() == [True] + [False] * (len(start.is_first) - 1)
        before = [e.load() for e in entries if e.source == "replay"]
        assert any(np.array_equal(start.observations, e.observations[: len(start.observations)]) for e in before)
    assert len(lengths) > 3
    with pytest.raises(GymlabError, match="cannot begin"):
        from_episodes(entries[:1], agent.action_space)
