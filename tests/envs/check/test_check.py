"""Every check on an environment that breaks it, and all of them on one that is right."""

import broken_envs
import gymnasium as gym
import numpy as np
import pytest

from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.envs import check
from gymlab.envs.build import blueprint
from gymlab.envs.check import CHECKS, check_environment, fresh_trace
from gymlab.envs.check.streams import same_stream, single_stream
from gymlab.envs.check.values import first_not_finite, misfit
from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import NotInstalled

STEPS = 60


@pytest.fixture
def config():
    names = []

    def make(name, limit=200, **fields):
        names.append(f"Check{name}-v0")
        gym.register(names[-1], entry_point=getattr(broken_envs, name), max_episode_steps=limit)
        return Config(env_id=names[-1], algo_id="any", n_envs=2, **fields)

    yield make
    for name in names:
        gym.registry.pop(name)


def findings(config, fresh=None, until=None):
    """Findings by check, as far as asked for: the others are not made."""
    seeds = SeedTree(0)
    found = {}
    for finding in check_environment(config, seeds, STEPS, fresh or (lambda: fresh_trace(config, seeds, STEPS))):
        assert finding.check in CHECKS
        assert finding.check not in found
        found[finding.check] = finding
        if finding.check == until:
            break
    return found


def test_an_environment_that_is_right_passes_every_check_in_order(config):
    found = findings(config("Right"))
    assert list(found) == list(CHECKS)
    assert {finding.state for finding in found.values()} == {"ok"}, found
    assert found["frame"].detail.startswith("8x9x3 uint8")
    assert "time limit 200" in found["episode"].detail
    assert "2 sync" in found["speed"].detail


WRONG = [
    ("CannotBeMade", "make", "failed", "no level file"),
    ("WithoutSpace", "make", "failed", "no action_space"),
    ("OldReset", "api", "failed", "reset gave a ndarray, not (observation, info)"),
    ("ResetWithoutSeed", "api", "failed", "reset does not take a seed"),
    ("OldStep", "api", "failed", "step gave a tuple of 4"),
    ("InfoIsNone", "api", "failed", "step gave a NoneType as info"),
    ("RewardIsText", "api", "failed", "the reward 'much', which is no number"),
    ("RewardIsAnArray", "api", "warning", "reward is an array of shape (1,)"),
    ("FlagIsNone", "api", "failed", "truncated as None"),
    ("Raises", "api", "failed", "ValueError: a wall is missing"),
    ("Dies", "api", "failed", "exit code 11"),
    ("WrongShape", "observation", "failed", "has shape (3,), the space (2,)"),
    ("Doubles", "observation", "warning", "is float64, the space float32"),
    ("FloatsForBytes", "observation", "failed", "is float32, the space uint8"),
    ("OutOfBounds", "observation", "failed", "outside of [-2, 2]"),
    ("TextObservations", "observation", "failed", "no network for Text(1, 5"),
    ("WrongKeys", "observation", "failed", "has ['plaice'], not the keys ['place']"),
    ("DictActions", "action", "failed", "no policy for Dict"),
    ("UnboundedActions", "action", "warning", "is not bounded"),
    ("WideActions", "action", "warning", "far from -1 to 1"),
    ("NotFinite", "finite", "failed", "the reward of step 1 is nan"),
    ("NoReward", "reward", "warning", "always 0 in 60 random steps"),
    ("LargeReward", "reward", "warning", "mean -"),
    ("LargeImages", "shown", "warning", "Box 3x200x160"),
    ("GlobalRandomness", "seeding", "failed", "in a new environment, from the first observation"),
    ("OutlivesReset", "seeding", "failed", "when the environment is reset with it again, from the first observation"),
    ("WithoutChance", "seeding", "warning", "seeds 1 and 2 give the same"),
    ("SharedByClass", "sync", "failed", "environment 0 of 2 differs from one alone, from step 2"),
    ("Blind", "frame", "warning", "it takes no render_mode"),
    ("GrayFrames", "frame", "warning", "8x9 uint8"),
]


@pytest.mark.parametrize(("name", "which", "state", "words"), WRONG, ids=[name for name, *_ in WRONG])
def test_what_is_wrong_is_told(config, name, which, state, words):
    found = findings(config(name), until=which)
    assert found[which].state == state, found[which]
    assert words in found[which].detail
    if state != "ok" and name not in ("Dies",):
        assert found[which].advice
    before = list(found)[:-1]
    assert all(found[check].state == "ok" for check in before), found


def test_what_cannot_be_checked_after_a_failure_is_skipped_by_name(config):
    found = findings(config("OldStep"))
    assert found["replay"].state == "skipped"
    assert found["replay"].detail == "put api right first"
    assert list(findings(config("CannotBeMade"))) == ["make"]


def test_one_that_freezes_is_left_alone(config, monkeypatch):
    monkeypatch.setattr(check, "TIMEOUT", 1.0)
    assert "did not answer within 1 s" in findings(config("Freezes"), until="api")["api"].detail


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("Endless", "warning", "none ended in 60 steps, and no time limit is known"),
        ("Right", "warning", "no time limit is known, and an agent may learn to go on forever"),
    ],
)
def test_without_a_time_limit(config, name, state, words):
    finding = findings(config(name, limit=None), until="episode")["episode"]
    assert finding.state == state
    assert words in finding.detail
    assert "max_episode_steps" in finding.advice


def test_a_configs_time_limit_counts(config):
    finding = findings(config("Endless", limit=None, max_episode_steps=20), until="episode")["episode"]
    assert (finding.state, finding.detail) == ("ok", "3 ended, mean length 20.0, 0 with the task, time limit 20")


def test_the_environments_own_time_limit_counts(config):
    finding = findings(config("CutsItself", limit=None), until="episode")["episode"]
    assert (finding.state, finding.detail) == ("ok", "6 ended, mean length 10.0, 0 with the task, time limit 10")


def test_a_task_of_one_length_needs_no_limit():
    found = findings(Config(env_id="Bandit-v0", algo_id="any", n_envs=2), until="episode")
    assert found["episode"].detail == "the task ends at step 1, 60 times"


def test_a_fresh_process_that_differs_is_told_with_the_place(config):
    chosen = config("Right")
    seeds = SeedTree(0)
    trace = fresh_trace(chosen, seeds, STEPS)
    finding = findings(chosen, fresh=lambda: [*trace[:2], "other", *trace[3:]], until="replay")["replay"]
    assert finding.state == "warning"
    assert "from step 2" in finding.detail
    assert "order of a set" in finding.advice


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_stream_that_is_not_that_of_one_alone(config, backend):
    plan = blueprint(config("Right", max_episode_steps=4), SeedTree(0), "check")
    actions = [[0, 1] * 5, [1, 1] * 5]
    alone = [single_stream(plan, index, actions[index]) for index in range(2)]
    finding = same_stream(backend, plan, SeedTree(0), actions, alone)
    assert (finding.state, finding.detail) == ("ok", "2 x 10 steps as alone, 4 episodes ended and reset")
    alone[1][4] = "another reset"
    finding = same_stream(backend, plan, SeedTree(0), actions, alone)
    assert (finding.state, finding.detail) == ("failed", "environment 1 of 2 differs from one alone, from step 4")


class WrongAboutItsSpace(gym.ObservationWrapper):
    """Gives three numbers and promises two."""

    def observation(self, observation):
        return np.append(observation, np.float32(0))


def test_a_wrapper_that_is_wrong_about_its_space(config):
    EnvWrapperRegistry.register("WrongAboutItsSpace")(WrongAboutItsSpace)
    finding = findings(config("Right", env_wrappers=({"id": "WrongAboutItsSpace"},)), until="shown")["shown"]
    assert finding.state == "failed"
    assert "an observation of shape (3,), its space (2,)" in finding.detail
    assert finding.advice.startswith("A wrapper is wrong")


def test_a_missing_package_is_the_error_itself():
    def missing():
        raise NotInstalled("Run: pip install 'gymlab[atari]'")

    with pytest.raises(NotInstalled, match=r"gymlab\[atari\]"):
        check._apart("make", missing)


def test_values_in_dicts_and_tuples():
    space = gym.spaces.Dict({"a": gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(0, 1, (2,))])})
    assert misfit(space, {"a": (2, np.zeros(2, np.float32))}) is None
    assert misfit(space, {"a": (3, np.zeros(2, np.float32))}).detail == "at 'a' at 0 is 3, outside of 0 to 2"
    assert misfit(space, {"a": [1]}).detail == "at 'a' is list, not a tuple of 2"
    # Harmless is what a training takes.
    pixels = gym.spaces.Box(0, 255, (2,), np.uint8)
    assert misfit(pixels, np.array([1, 255])).harmless
    assert misfit(pixels, [1, 255]).harmless
    assert not misfit(pixels, ["1", "2"]).harmless
    assert not misfit(pixels, np.array([1.0, 2.0])).harmless
    assert first_not_finite({"a": (1, np.array([0.0, np.inf]))}) == np.inf
    assert first_not_finite((1, {"b": 2.0})) is None
