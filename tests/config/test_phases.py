"""Phases as people write them."""

import pytest

from gymlab.config import parse_phases
from gymlab.config.schema import HookSpec, Until
from gymlab.errors import ConfigError


def one(**fields):
    return parse_phases([{"name": "p", "type": "online", **fields}])[0]


@pytest.mark.parametrize(
    ("kind", "hooks"),
    [
        ("online", ["collect", "update_world_model", "update_controller"]),
        ("offline", ["update_world_model", "update_controller"]),
        ("eval_only", ["evaluate"]),
    ],
)
def test_hooks_default_by_type(kind, hooks):
    phase = parse_phases([{"name": "p", "type": kind}])[0]
    assert [hook.name for hook in phase.hooks] == hooks


@pytest.mark.parametrize("key", ["hooks", "workflow_hooks"])
def test_hooks_by_either_name_and_a_string_is_a_list_of_one(key):
    assert one(**{key: "collect"}).hooks == (HookSpec(name="collect"),)
    assert one(**{key: ["collect", "update_controller"]}).hooks == (
        HookSpec(name="collect"),
        HookSpec(name="update_controller"),
    )


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ({"name": "collect", "times": 4}, HookSpec(name="collect", times=4)),
        ({"hook": "collect", "times": 4}, HookSpec(name="collect", times=4)),
        ({"update_world_model": {"ratio": 0.5}}, HookSpec(name="update_world_model", ratio=0.5)),
        ({"collect": None}, HookSpec(name="collect")),
        ({"update_tokenizer": {"buffer": "a", "times": 2}}, HookSpec(name="update_tokenizer", times=2, buffer="a")),
        ({"name": "update", "buffer": None}, HookSpec(name="update")),
        ({"name": "update", "ratio": 1}, HookSpec(name="update", ratio=1.0)),
    ],
)
def test_hooks_with_times_and_ratio(hook, expected):
    assert one(hooks=[hook]).hooks == (expected,)
    assert one(hooks=hook).hooks == (expected,)


@pytest.mark.parametrize("unit", ["steps", "updates", "cycles"])
def test_durations_and_their_aliases(unit):
    assert getattr(one(**{unit: 1e3}), f"duration_{unit}") == 1000
    assert getattr(one(**{f"duration_{unit}": 5}), f"duration_{unit}") == 5
    with pytest.raises(ConfigError, match=f"`duration_{unit}` is given twice"):
        one(**{unit: 1, f"duration_{unit}": 2})


def test_a_phase_may_have_no_duration():
    phase = one()
    assert (phase.duration_steps, phase.duration_updates, phase.duration_cycles, phase.until) == (None,) * 4


def test_other_keys_reach_the_workflow():
    phase = one(
        buffer="replay", controller="actor", collect_length=16, imagination_horizon=15, options={"deep": {"a": 1}}
    )
    assert phase.buffer == "replay"
    assert phase.options == {"controller": "actor", "collect_length": 16, "imagination_horizon": 15, "deep": {"a": 1}}


def test_until():
    phase = one(until={"metric": "val/roll/ep_rew/mean", "at_least": 475})
    assert phase.until == Until(metric="val/roll/ep_rew/mean", at_least=475)
    with pytest.raises(ConfigError, match=r"phase 'p'.*`until` needs `at_least` or `at_most`"):
        one(until={"metric": "x"})


def test_names_are_made_up_and_must_differ():
    assert [phase.name for phase in parse_phases([{"type": "online"}, {"type": "offline"}])] == ["phase_0", "phase_1"]
    with pytest.raises(ConfigError, match="two phases are named 'p'"):
        parse_phases([{"name": "p", "type": "online"}, {"name": "p", "type": "online"}])


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({"name": "warm", "hooks": ["collect"]}, "phase 'warm': has no `type`. Give one of online, offline, eval_only"),
        ({"name": "warm", "type": "onlin"}, "phase 'warm': unknown type 'onlin'. Did you mean 'online'"),
        ({"name": "warm", "type": "online", "hooks": []}, "phase 'warm': has an empty list of hooks"),
        ({"name": "warm", "type": "online", "workflow_hooks": None}, "empty list of hooks"),
        (
            {"name": "warm", "type": "online", "hooks": "a", "workflow_hooks": "b"},
            "has both `hooks` and `workflow_hooks`",
        ),
        ({"name": "warm", "type": "online", "hooks": [3]}, "a hook is a name or a mapping"),
        ({"name": "warm", "type": "online", "hooks": [{"times": 3}]}, "a hook without a name"),
        (
            {"name": "warm", "type": "online", "hooks": [{"name": "a", "time": 3}]},
            "`time` of hook 'a'. Did you mean 'times'",
        ),
        (
            {"name": "warm", "type": "online", "hooks": [{"name": "a", "times": 0}]},
            r"`hooks.0.times` must be at least 1, got 0",
        ),
        ({"name": "warm", "type": "online", "steps": 0}, "`duration_steps` must be at least 1"),
        (
            {"name": "warm", "type": "online", "steps": "long"},
            '`duration_steps` expects an integer >= 1 or null, got "long"',
        ),
        ("collect", "expected a mapping"),
    ],
)
def test_errors_name_the_phase(phase, words):
    with pytest.raises(ConfigError, match=words):
        parse_phases([phase])


def test_a_curriculum_is_a_list():
    with pytest.raises(ConfigError, match="expected a list of phases"):
        parse_phases("collect")
    assert len(parse_phases({"type": "online"})) == 1
