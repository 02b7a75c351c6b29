"""What an environment may answer, what ends a run and what is a crash: the same in this process and in workers."""

import re
import signal
import sys
import threading
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from counting_env import step_often
from gymnasium.vector import AutoresetMode

from gymlab.engine.seeding import SeedTree
from gymlab.engine.signals import StopSignal
from gymlab.envs import make_env, make_vector
from gymlab.envs.adapter import GymnasiumVector
from gymlab.envs.contract import ObservationCheck, WrongAnswer, step_answer
from gymlab.envs.spaces import Flattener
from gymlab.envs.vector import EnvironmentSpec
from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import EnvironmentFailure

BACKENDS = ["sync", "async"]
FAULT = 2
"""The action on which an environment answers as a test wants it to."""
SPACES = {
    "box": gym.spaces.Box(-10, 10, (3,), np.float32),
    "bytes": gym.spaces.Box(0, 255, (3,), np.uint8),
    "discrete": gym.spaces.Discrete(5, start=1),
    "bits": gym.spaces.MultiBinary(3),
    "pixels": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "dict": gym.spaces.Dict({"where": gym.spaces.Box(-10, 10, (3,), np.float32), "what": gym.spaces.Discrete(4)}),
    "tuple": gym.spaces.Tuple((gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.MultiBinary(2))),
}
GOOD = {
    "box": np.zeros(3, np.float32),
    "bytes": np.zeros(3, np.uint8),
    "discrete": 2,
    "bits": np.zeros(3, np.int8),
    "pixels": np.zeros((8, 8, 3), np.uint8),
    "dict": {"where": np.zeros(3, np.float32), "what": 1},
    "tuple": (np.zeros(2, np.float32), np.zeros(2, np.int8)),
}


class Answering(gym.Env):
    """Episodes of 5 steps with reward 1. On action 2 parts of the answer are other ones, or something is raised."""

    changes: dict = {}
    """Parts of the answer to put in; with the key `answer` all of it, with `raises` something to raise."""
    in_reset: dict = {}
    """The same for resets with a seed of `bad_seeds`: `observation`, `info`, `answer`, `raises`."""
    bad_seeds: frozenset = frozenset()
    metrics = None
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, space="box", render_mode=None):
        self.observation_space = SPACES[space]
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode
        self.good = GOOD[space]

    def reset(self, *, seed=None, options=None):
        self.count = 0
        answer = {"observation": self.good, "info": {}}
        if seed in Answering.bad_seeds:
            if "raises" in Answering.in_reset:
                Answering.in_reset["raises"]()
            answer |= Answering.in_reset
        return answer.get("answer", (answer["observation"], answer["info"]))

    def step(self, action):
        self.count += 1
        answer = {
            "observation": self.good,
            "reward": 1.0,
            "terminated": self.count == 5,
            "truncated": False,
            "info": {},
        }
        if action == FAULT:
            if "raises" in Answering.changes:
                Answering.changes["raises"]()
            answer |= Answering.changes
        return answer.get("answer", tuple(answer.values()))

    def episode_metrics(self):
        if Answering.metrics is not None:
            Answering.metrics()

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


@pytest.fixture
def answering(config, monkeypatch):
    """Makes two environments; parts of an answer are given by name, those of a reset as `in_reset`."""
    gym.register("Answering-v0", entry_point=Answering)
    opened = []

    def make(backend, space="box", in_reset=None, bad_seeds=(), fields=None, **changes):
        monkeypatch.setattr(Answering, "changes", changes)
        monkeypatch.setattr(Answering, "in_reset", in_reset or {})
        monkeypatch.setattr(Answering, "bad_seeds", frozenset(bad_seeds))
        settings = {"env_kwargs": {"space": space}, "env_workers": 1, "double_buffer": False, **(fields or {})}
        opened.append(make_vector(config("Answering-v0", **settings), 2, SeedTree(7), backend=backend))
        # As if an episode had been finished before: what fails in the first one ends the run.
        opened[-1].restarts.finished = True
        return opened[-1]

    yield make
    for vector in opened:
        vector.close()
    gym.registry.pop("Answering-v0")


def seed_of(index, episode):
    return SeedTree(7).child("train", index, episode).integer()


def step_with_fault(vector):
    """Two steps, then one in which environment 1 answers as it was told."""
    vector.reset()
    for _ in range(2):
        vector.step(np.array([0, 0]))
    return vector.step(np.array([0, FAULT]))


def object_array():
    return np.array([None, 1, "x"], dtype=object)


WRONG = {
    "an observation of shape (1,)": ("box", {"observation": np.zeros(1, np.float32)}, "shape (1,), its space (3,)"),
    "a number as observation": ("box", {"observation": 0.5}, "shape (), its space (3,)"),
    "an axis too many": ("box", {"observation": np.zeros((1, 3), np.float32)}, "shape (1, 3), its space (3,)"),
    "a short list": ("box", {"observation": [0.0, 1.0]}, "shape (2,), its space (3,)"),
    "a ragged list": ("box", {"observation": [0.0, [1.0, 2.0], 3.0]}, "which is no array of numbers"),
    "no observation": ("box", {"observation": None}, "None as observation, which is no array of numbers"),
    "a dict as observation": ("box", {"observation": {"a": 1}}, "which is no array of numbers"),
    "text as observation": ("box", {"observation": np.array(["1", "2", "3"])}, "which is no array of numbers"),
    "objects as observation": ("box", {"observation": object_array()}, "which is no array of numbers"),
    "complex numbers": ("box", {"observation": np.zeros(3, np.complex64)}, "which is no array of numbers"),
    "floats for integers": ("bytes", {"observation": np.full(3, 0.5)}, "float64 values for a space of uint8"),
    "an integer too large": ("bytes", {"observation": np.array([1, 300, 2])}, "300, which uint8 cannot hold"),
    "a negative byte": ("bytes", {"observation": [1, -1, 2]}, "-1, which uint8 cannot hold"),
    "a fraction for a state": ("discrete", {"observation": 1.5}, "float64 values for a space of int64"),
    "a state in an array": ("discrete", {"observation": np.array([2])}, "shape (1,), its space ()"),
    "a state below": ("discrete", {"observation": 0}, "0, which is not in 1 to 5"),
    "a state above": ("discrete", {"observation": np.array(6)}, "6, which is not in 1 to 5"),
    "one bit": ("bits", {"observation": np.ones(1, np.int8)}, "shape (1,), its space (3,)"),
    "a number in a dict": (
        "dict",
        {"observation": {"where": 0.5, "what": 1}},
        "in ['where'] an observation of shape (), its space (3,)",
    ),
    "a negative index in a dict": (
        "dict",
        {"observation": {"where": np.zeros(3), "what": -1}},
        "in ['what'] an observation of -1, which is not in 0 to 3",
    ),
    "two as a bit": ("bits", {"observation": np.array([0, 2, 1], np.int8)}, "2, which is no bit"),
    "two as a bit in a list": ("bits", {"observation": [0, 1, 2]}, "2, which is no bit"),
    "a part too many": ("tuple", {"observation": (*GOOD["tuple"], 1)}, "has [2], its space has not"),
    "a part too few": ("tuple", {"observation": GOOD["tuple"][:1]}, "has no [1]"),
    "a key too many": ("dict", {"observation": {**GOOD["dict"], "more": 1}}, "has ['more'], its space has not"),
    "a reward that no float holds": ("box", {"reward": 10**400}, "a reward of 1329 bits, which no float can hold"),
    "a reward that has no text": ("box", {"reward": -(10**5000)}, "which no float can hold"),
    "a missing key": ("dict", {"observation": {"what": 1}}, "has no ['where']"),
    "no reward": ("box", {"reward": None}, "reward None, which is no number"),
    "text as reward": ("box", {"reward": "1.0"}, "reward '1.0', which is no number"),
    "several rewards": ("box", {"reward": np.ones(2)}, "reward array([1., 1.]), which is no number"),
    "an empty reward": ("box", {"reward": []}, "reward [], which is no number"),
    "a complex reward": ("box", {"reward": 1j}, "reward 1j, which is no number"),
    "several flags": ("box", {"terminated": np.array([True, False])}, "terminated as array([ True, False])"),
    "no flag": ("box", {"terminated": None}, "terminated as None, which is neither true nor false"),
    "text as flag": ("box", {"truncated": "no"}, "truncated as 'no', which is neither true nor false"),
    "a float as flag": ("box", {"truncated": 0.0}, "truncated as 0.0, which is neither true nor false"),
    "two as flag": ("box", {"truncated": 2}, "truncated as 2, which is neither true nor false"),
    "no info": ("box", {"info": None}, "a NoneType as info, not a dict"),
    "a list as info": ("box", {"info": [1]}, "a list of 1 as info, not a dict"),
    "four values": ("box", {"answer": (np.zeros(3), 1.0, False, {})}, "a tuple of 4, not (observation, reward"),
    "three values": ("box", {"answer": (np.zeros(3), 1.0, False)}, "a tuple of 3, not (observation, reward"),
    "nothing at all": ("box", {"answer": None}, "step returns nothing, not (observation, reward"),
    "a mask of one": ("box", {"info": {"action_mask": [True]}}, "action_mask of shape (1,) for 3 actions"),
    "a success of two": (
        "box",
        {"terminated": True, "info": {"is_success": np.array([True, False])}},
        "info['is_success'] as array([ True, False])",
    ),
}
"""Space, the parts of the answer, and what is said."""


ADVICE = "End step with `return observation, reward, terminated, truncated, info`."


@pytest.mark.parametrize(
    ("answer", "advice"),
    [(None, ADVICE), ((0, 1.0, False), ADVICE), ((0,) * 6, ADVICE), ((0, 1.0, False, {}), "Split the old `done`:")],
)
def test_only_four_values_are_the_old_interface(answer, advice):
    with pytest.raises(WrongAnswer) as caught:
        step_answer(answer)
    assert caught.value.advice.startswith(advice)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("space", "changes", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_ends_the_run_and_names_environment_and_step(answering, backend, space, changes, words):
    vector = answering(backend, space, **changes)
    place = "Answering-v0: train environment 1, episode 0, step 3: "
    with pytest.raises(
        WrongAnswer, match=rf"(?s)test_contract\.py:\d+, in step: {re.escape(place)}.*{re.escape(words)}"
    ):
        step_with_fault(vector)
    assert vector.restarts.count == 0


class Own(EnvironmentFailure):
    """An error of an environment's author that looks like one of ours, and cannot be sent anywhere."""

    def __init__(self, *, number):
        super().__init__(f"number {number} is wrong")
        self.lock = threading.Lock()


def raise_own():
    raise Own(number=5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_ours_that_an_environment_raises_names_environment_and_step(answering, backend):
    message = r"^Answering-v0: train environment 1, episode {}: number 5 is wrong$"
    with pytest.raises(EnvironmentFailure, match=message.format("0, step 3")):
        step_with_fault(answering(backend, raises=raise_own))
    vector = answering(backend, in_reset={"raises": raise_own}, bad_seeds={seed_of(1, 0)})
    with pytest.raises(EnvironmentFailure, match=message.format("0, reset")):
        vector.reset()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("in_reset", "words"),
    [
        ({"observation": np.zeros(1, np.float32)}, "shape (1,), its space (3,)"),
        ({"observation": 0.0}, "shape (), its space (3,)"),
        ({"info": None}, "a NoneType as info, not a dict"),
        ({"answer": np.zeros(3)}, "a ndarray, not (observation, info)"),
        ({"answer": None}, "a NoneType, not (observation, info)"),
        ({"info": {"action_mask": [True] * 4}}, "action_mask of shape (4,) for 3 actions"),
    ],
)
def test_a_wrong_answer_of_reset_ends_the_run_too(answering, backend, in_reset, words):
    vector = answering(backend, in_reset=in_reset, bad_seeds={seed_of(1, 1)})
    vector.reset()
    place = "Answering-v0: train environment 1, episode 1, reset: "
    with pytest.raises(
        EnvironmentFailure, match=rf"test_contract\.py:\d+, in reset: {re.escape(place)}.*{re.escape(words)}"
    ):
        step_often(vector, 5)
    assert vector.restarts.count == 0


ALLOWED = {
    "float64": ("box", {"observation": np.array([0.5, 1, 2])}, [0.5, 1, 2]),
    "float16": ("box", {"observation": np.array([0.5, 1, 2], np.float16)}, [0.5, 1, 2]),
    "integers for floats": ("box", {"observation": np.array([0, 1, 2])}, [0, 1, 2]),
    "truths for floats": ("box", {"observation": np.array([True, False, True])}, [1, 0, 1]),
    "a list": ("box", {"observation": [0.5, 1.0, 2]}, [0.5, 1, 2]),
    "a tuple": ("box", {"observation": (0.5, 1.0, 2)}, [0.5, 1, 2]),
    "another width": ("bytes", {"observation": np.array([1, 255, 0])}, [1, 255, 0]),
    "truths for bits": ("bits", {"observation": np.array([True, False, True])}, [1, 0, 1]),
    "a number of numpy's": ("discrete", {"observation": np.int32(4)}, 4),
    "an array without axes": ("discrete", {"observation": np.array(4)}, 4),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("space", "changes", "stored"), ALLOWED.values(), ids=ALLOWED)
def test_observations_that_lose_nothing_are_taken(answering, backend, space, changes, stored):
    step = step_with_fault(answering(backend, space, **changes))
    np.testing.assert_array_equal(step.observation[1], stored)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "reward", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0]), [2.0]], ids=repr
)
def test_a_reward_is_one_number_in_whatever_dress(answering, backend, reward):
    vector = answering(backend, reward=reward)
    assert step_with_fault(vector).reward[1] == 2.0
    (episode,) = (e for e in vector.step(np.array([0, 0])).episodes + vector.step(np.array([0, 0])).episodes if e[0])
    assert episode.env_return == episode.shaped_return == 6.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("true", [True, np.True_, 1, np.int8(1), np.array(True), np.array([True])], ids=repr)
def test_a_flag_is_true_or_false_in_whatever_dress(answering, backend, true):
    step = step_with_fault(answering(backend, terminated=true))
    assert step.terminated.tolist() == [False, True]
    assert step.episodes[0].terminated is True
    step = step_with_fault(answering(backend, truncated=true))
    assert step.truncated.tolist() == [False, True]


def leave_with(code):
    return partial(sys.exit, code)


class Panic(BaseException):
    """As extensions in Rust raise it."""


def panic():
    raise Panic("index out of bounds")


def interrupt():
    raise KeyboardInterrupt


def divide():
    raise ZeroDivisionError("the gears are stuck")


CRASHES = {
    "raise": (divide, "ZeroDivisionError: the gears are stuck"),
    "sys.exit(0)": (leave_with(0), "the environment tried to end the program (SystemExit: 0)"),
    "sys.exit(text)": (leave_with("bye"), "the environment tried to end the program (SystemExit: bye)"),
    "panic": (panic, "the environment tried to end the program (Panic: index out of bounds)"),
    "KeyboardInterrupt": (interrupt, "the environment tried to end the program (KeyboardInterrupt)"),
}


@pytest.fixture
def training():
    """Signals as in a training, where Ctrl-C raises nothing."""
    with StopSignal():
        yield


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("crash", "words"), CRASHES.values(), ids=CRASHES)
def test_a_crash_in_a_step_is_a_restart_of_that_environment_alone(answering, backend, crash, words, caplog):
    vector = answering(backend, raises=crash)
    step = step_with_fault(vector)
    assert step.reward.tolist() == [1.0, 0.0]
    assert step.truncated.tolist() == [False, True]
    assert [tuple(episode) for episode in step.episodes] == [(1, 0, 2.0, 2.0, 2, False, None, True, None, None)]
    assert vector.restarts.count == 1
    assert vector.restarts.episodes_lost == 0
    assert words in caplog.text
    assert [episode[:2] for _ in range(2) for episode in vector.step(np.array([0, 0])).episodes] == [(0, 0)]


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("crash", [divide, leave_with(0), interrupt])
def test_a_crash_in_a_reset_is_a_restart(answering, backend, crash):
    vector = answering(backend, in_reset={"raises": crash}, bad_seeds={seed_of(1, 1)})
    vector.reset()
    episodes = [episode for _ in range(10) for episode in vector.step(np.array([0, 0])).episodes]
    assert [episode[:2] for episode in episodes] == [(0, 0), (1, 0), (0, 1), (1, 2)]
    assert not any(episode.broken for episode in episodes)
    assert vector.restarts.count == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("crash", [divide, leave_with(0)])
def test_a_crash_when_an_episode_is_summed_up_is_a_restart(answering, backend, crash, monkeypatch):
    vector = answering(backend, terminated=True)
    monkeypatch.setattr(Answering, "metrics", staticmethod(crash))
    if backend == "async":
        # Its worker was forked before.
        vector.close()
        vector = answering(backend, terminated=True)
    step = step_with_fault(vector)
    assert step.truncated.tolist() == [False, True]
    assert not step.terminated.any()
    assert [tuple(episode) for episode in step.episodes] == [(1, 0, 2.0, 2.0, 2, False, None, True, None, None)]
    assert vector.restarts.count == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_crash_in_the_middle_of_a_repeated_action_leaves_the_sums_of_whole_steps(answering, backend):
    vector = answering(backend, fields={"frame_skip": 2}, raises=divide)
    vector.reset()
    vector.step(np.array([0, 0]))

    def second_time(self, action):
        if self.count % 2:
            divide()
        return original(self, action)

    original = Answering.step
    vector.close()
    Answering.step = second_time
    try:
        vector = answering(backend, fields={"frame_skip": 2})
        vector.reset()
        (episode, _) = vector.step(np.array([0, 0])).episodes
    finally:
        Answering.step = original
    assert tuple(episode) == (0, 0, 0.0, 0.0, 0, False, None, True, None, None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_that_leaves_when_it_is_made_could_not_be_made(config, backend):
    gym.register("Leaving-v0", entry_point=leave_with(0))
    try:
        with pytest.raises(EnvironmentFailure, match=r"(?s)environment 0 could not be made"):
            make_vector(config("Leaving-v0", env_workers=1, double_buffer=False), 2, SeedTree(0), backend=backend)
    finally:
        gym.registry.pop("Leaving-v0")


def test_ctrl_c_stays_ctrl_c_where_it_raises(answering):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    vector = answering("sync", raises=partial(signal.raise_signal, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        step_with_fault(vector)
    assert vector.restarts.count == 0


def test_outside_of_vectors_too(answering, config):
    answering("sync", raises=leave_with(0), in_reset={"observation": 1.0}, bad_seeds={5})
    env = make_env(config("Answering-v0"))
    env.reset(seed=1)
    with pytest.raises(RuntimeError, match="tried to end the program"):
        env.step(FAULT)
    with pytest.raises(EnvironmentFailure, match=r"Answering-v0: train environment 0, episode 1, reset: .*shape \(\)"):
        env.reset(seed=5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("fields", "observation", "words"),
    [
        ({"resize_obs": (4, 4)}, np.zeros((6, 8, 3), np.uint8), "shape (6, 8, 3), its space (8, 8, 3)"),
        ({"grayscale_obs": True}, np.zeros((8, 8, 3)), "float64 values for a space of uint8"),
        ({"frame_stack": 2}, np.zeros((8, 8), np.uint8), "shape (8, 8), its space (8, 8, 3)"),
    ],
)
def test_wrappers_of_ours_hide_no_wrong_shape(answering, backend, fields, observation, words):
    vector = answering(backend, "pixels", fields=fields, observation=observation)
    with pytest.raises(EnvironmentFailure, match=f"environment 1, episode 0, step 3: .*{re.escape(words)}"):
        step_with_fault(vector)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stack_of_frames_takes_no_single_number(answering, backend):
    vector = answering(backend, fields={"frame_stack": 2}, observation=0.5)
    with pytest.raises(EnvironmentFailure, match=r"episode 0, step 3: .*shape \(\), its space \(3,\)"):
        step_with_fault(vector)


class Forgetful(gym.Wrapper):
    """A wrapper that loses the reward, and one that puts a wrong space right."""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, None if action == FAULT else reward, *rest


class Rounded(gym.ObservationWrapper):
    """Puts right what an environment that says bytes and gives floats does."""

    def observation(self, observation):
        return np.asarray(observation).round().astype(np.uint8)


@pytest.fixture
def wrappers():
    for wrapper in (Forgetful, Rounded):
        EnvWrapperRegistry.register(wrapper)
    yield
    for wrapper in (Forgetful, Rounded):
        del EnvWrapperRegistry._entries[wrapper.__name__]


@pytest.mark.usefixtures("wrappers")
@pytest.mark.parametrize("backend", BACKENDS)
def test_wrappers_are_held_to_the_same(answering, backend):
    vector = answering(backend, fields={"env_wrappers": ({"id": "Forgetful"},)})
    with pytest.raises(EnvironmentFailure, match=r"episode 0, step 3: .*reward None, which is no number"):
        step_with_fault(vector)


@pytest.mark.usefixtures("wrappers")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrapper_may_put_right_what_the_environment_gets_wrong(answering, backend):
    vector = answering(backend, "bytes", fields={"env_wrappers": ({"id": "Rounded"},)}, observation=np.full(3, 6.8))
    assert step_with_fault(vector).observation[1].tolist() == [7, 7, 7]


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_no_mask_is_given_every_action_is_allowed(answering, backend):
    vector = answering(backend, info={"action_mask": np.array([1, 0, 1], np.int8)})
    step = step_with_fault(vector)
    assert step.action_mask.tolist() == [[True] * 3, [True, False, True]]
    assert vector.step(np.array([0, 0])).action_mask.tolist() == [[True] * 3] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_success_may_be_a_number_of_numpys(answering, backend):
    step = step_with_fault(answering(backend, terminated=True, info={"is_success": np.array([True])}))
    assert step.episodes[0].success is True


def test_an_info_that_cannot_leave_its_process_is_named(answering):
    vector = answering("async", info={"simulator": lambda: None})
    with pytest.raises(
        EnvironmentFailure, match=r"environment 1, episode 0: info\['simulator'\] cannot be sent .*sync"
    ):
        step_with_fault(vector)
    assert vector.restarts.count == 0
    assert "simulator" in step_with_fault(answering("sync", info={"simulator": lambda: None})).info


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_that_cannot_be_drawn_is_named(config, monkeypatch, backend):
    gym.register("Answering-v0", entry_point=Answering)
    monkeypatch.setattr(Answering, "render", lambda self: sys.exit(0))
    settings = config("Answering-v0", env_workers=1, double_buffer=False)
    try:
        with make_vector(settings, 2, SeedTree(7), backend=backend, render_mode="rgb_array") as vector:
            vector.reset()
            with pytest.raises(
                EnvironmentFailure, match=r"(?s)environment 0 cannot be drawn:.*tried to end the program"
            ):
                vector.render()
    finally:
        gym.registry.pop("Answering-v0")


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_that_fails_when_it_is_closed_holds_nobody_up(config, monkeypatch, backend):
    gym.register("Answering-v0", entry_point=Answering)
    monkeypatch.setattr(Answering, "close", lambda self: sys.exit(0))
    try:
        vector = make_vector(
            config("Answering-v0", env_workers=1, double_buffer=False), 2, SeedTree(7), backend=backend
        )
        vector.reset()
        vector.close()
    finally:
        gym.registry.pop("Answering-v0")


def test_a_replaced_environment_is_closed_before_its_successor_is_made(answering, monkeypatch):
    """There are environments of which a process can hold but one."""
    order = []
    vector = answering("sync", raises=divide)
    made, close = Answering.__init__, Answering.close
    monkeypatch.setattr(Answering, "__init__", lambda self, **fields: order.append("made") or made(self, **fields))
    monkeypatch.setattr(Answering, "close", lambda self: order.append("closed") or close(self))
    step_with_fault(vector)
    assert order == ["closed", "made"]


class Vector(gym.vector.VectorEnv):
    """Two environments in one, whose answers are parts of `changes`."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs = 2
    single_observation_space = SPACES["box"]
    single_action_space = gym.spaces.Discrete(3)
    render_mode = None

    def __init__(self, **changes):
        self.changes = changes

    def reset(self, *, seed=None, options=None):
        return self.changes.get("first", np.zeros((2, 3), np.float32)), {}

    def step(self, actions):
        if "raises" in self.changes:
            self.changes["raises"]()
        answer = {
            "observation": np.zeros((2, 3), np.float32),
            "reward": np.zeros(2),
            "terminated": np.zeros(2, bool),
            "truncated": np.zeros(2, bool),
            "info": {},
        }
        return tuple((answer | self.changes)[name] for name in answer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation": np.zeros((2, 1))}, "an observation of shape (2, 1), its space (2, 3)"),
        ({"observation": 0.5}, "an observation of shape (), its space (2, 3)"),
        ({"observation": np.array([["x"] * 3] * 2)}, "which is no array of numbers"),
        ({"reward": 1.0}, "reward of shape (), not (2,)"),
        ({"reward": np.ones((2, 1))}, "reward of shape (2, 1), not (2,)"),
        ({"reward": [None, 1.0]}, "reward [None, 1.0], which is no array of numbers"),
        ({"terminated": False}, "terminated of shape (), not (2,)"),
        ({"truncated": np.zeros(2)}, "truncated array([0., 0.]), which is no array of truth values"),
    ],
)
def test_a_vector_version_is_held_to_the_same(changes, words):
    vector = GymnasiumVector(Vector(**changes), EnvironmentSpec("Vector-v0"), SeedTree(0))
    vector.reset()
    with pytest.raises(
        EnvironmentFailure, match=f"^{re.escape('Vector-v0: the vector version, step 1: ')}.*{re.escape(words)}"
    ):
        vector.step(np.array([0, 0]))


def test_a_vector_version_is_held_to_the_same_in_its_reset():
    vector = GymnasiumVector(Vector(first=np.zeros((2, 1))), EnvironmentSpec("Vector-v0"), SeedTree(0))
    with pytest.raises(EnvironmentFailure, match=r"Vector-v0: the vector version, reset: .*shape \(2, 1\)"):
        vector.reset()


@pytest.mark.parametrize("crash", [divide, leave_with(0)])
def test_a_vector_version_that_crashes_ends_the_run_by_name(crash):
    vector = GymnasiumVector(Vector(raises=crash), EnvironmentSpec("Vector-v0"), SeedTree(0))
    vector.reset()
    with pytest.raises(
        EnvironmentFailure,
        match=r"(?s)test_contract\.py:.*Vector-v0: the vector version failed\. .*vectorization_mode: sync",
    ):
        vector.step(np.array([0, 0]))


def test_an_array_that_fits_is_passed_on_as_it_is():
    taken = ObservationCheck(SPACES["box"]).taken
    for dtype in (np.float32, np.float64, np.float32):
        observation = np.ones(3, dtype)
        assert taken(observation) is observation


def test_parts_of_a_dict_are_named():
    flatten = Flattener(gym.spaces.Dict({"a": gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3])])}))
    np.testing.assert_array_equal(flatten({"a": (np.array([1, 2]),)}), [0, 1, 0, 0, 1])
    with pytest.raises(WrongAnswer, match=r"in \['a'\]\[0\] an observation of array\(\[2, 0\]\), which is not in"):
        flatten({"a": (np.array([2, 0]),)})
