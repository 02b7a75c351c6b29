"""The scheduler: order of hooks, durations, ratios, budgets, resume in the middle."""

import pytest

from gymlab.config.schema import HookSpec, Phase, Until
from gymlab.engine.phases import PhaseScheduler
from gymlab.errors import ConfigError


def phase(name="p", hooks=("collect", "update_controller"), **fields):
    specs = tuple(hook if isinstance(hook, HookSpec) else HookSpec(name=hook) for hook in hooks)
    return Phase(name=name, type=fields.pop("type", "online"), hooks=specs, **fields)


def walk(scheduler, *, steps=10, updates=1, limit=50):
    """Names of the hooks in order, each collect giving `steps` and each update `updates`."""
    names = []
    while len(names) < limit and (action := scheduler.next_action()) is not None:
        names.append(action.hook)
        scheduler.advance(action, env_steps=steps if action.collects else 0, updates=0 if action.collects else updates)
    return names


def test_hooks_alternate_until_the_budget_is_spent():
    assert walk(PhaseScheduler([phase()], budget=30)) == ["collect", "update_controller"] * 3


def test_times_repeats_a_hook_within_a_cycle():
    scheduler = PhaseScheduler(
        [phase(hooks=("collect", HookSpec(name="update_world_model", times=3)), duration_cycles=2)]
    )
    assert walk(scheduler) == ["collect", *["update_world_model"] * 3] * 2


def test_ratio_owes_updates_per_step_and_keeps_the_fraction():
    scheduler = PhaseScheduler([phase(hooks=("collect", HookSpec(name="update_world_model", ratio=0.25)))], budget=50)
    # 10 steps owe 2.5 updates: 2, then 3, then 2, then 3, then 2.
    names = walk(scheduler)
    counts = [
        len(part) for part in " ".join(names).replace("update_world_model", "u").replace(" ", "").split("collect")[1:]
    ]
    assert counts == [2, 3, 2, 3, 2]


def test_small_ratio_still_ends_the_cycle_with_the_collect():
    scheduler = PhaseScheduler([phase(hooks=("collect", HookSpec(name="update_world_model", ratio=0.01)))], budget=1000)
    action = scheduler.next_action()
    scheduler.advance(action, env_steps=10)
    assert scheduler.cycle_ended
    assert scheduler.next_action().hook == "collect"


def test_skipped_updates_count_as_nothing_and_are_not_owed_later():
    scheduler = PhaseScheduler(
        [phase(hooks=("collect", HookSpec(name="update_world_model", ratio=1.0)), duration_updates=5)]
    )
    first = scheduler.next_action()
    scheduler.advance(first, env_steps=100)
    scheduler.advance(scheduler.next_action(), updates=0)
    assert scheduler.next_action().hook == "collect"
    assert scheduler.updates_done == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"duration_steps": 20}, ["collect", "update_controller"] * 2),
        ({"duration_cycles": 1}, ["collect", "update_controller"]),
        ({"duration_updates": 3}, ["collect", "update_controller"] * 3),
        ({"duration_steps": 100, "duration_cycles": 2}, ["collect", "update_controller"] * 2),
    ],
)
def test_the_first_duration_met_ends_the_phase(fields, expected):
    assert walk(PhaseScheduler([phase(**fields)])) == expected


def test_a_duration_in_updates_ends_in_the_middle_of_a_cycle():
    scheduler = PhaseScheduler(
        [phase(hooks=("collect", HookSpec(name="update_controller", times=10)), duration_updates=4)]
    )
    assert walk(scheduler) == ["collect", *["update_controller"] * 4]


def test_phases_follow_each_other_and_report_their_end():
    scheduler = PhaseScheduler(
        [phase("first", duration_cycles=1), phase("second", hooks=("collect",), duration_cycles=2)]
    )
    ended = []
    while (action := scheduler.next_action()) is not None:
        scheduler.advance(action, env_steps=5 if action.collects else 0, updates=0 if action.collects else 1)
        if scheduler.phase_ended:
            ended.append(scheduler.phase_ended.name)
    assert ended == ["first", "second"]


def test_until_ends_a_phase_on_a_metric():
    scheduler = PhaseScheduler([phase("a", until=Until(metric="val/x", at_least=10)), phase("b", duration_cycles=1)])
    scheduler.observe({"val/x": 9.9})
    assert scheduler.phase.name == "a"
    scheduler.observe({"val/x": 10})
    assert scheduler.phase.name == "b"


def test_remaining_steps_are_the_lesser_of_phase_and_budget():
    scheduler = PhaseScheduler([phase(duration_steps=25)], budget=100)
    scheduler.advance(scheduler.next_action(), env_steps=10)
    assert scheduler.remaining_env_steps == 15
    assert scheduler.progress == pytest.approx(0.4)


def test_a_spent_budget_ends_what_steps_environments_and_not_what_only_learns():
    """What gathers without a step, in a phase that is offline, is no reason to end the run."""
    gather = phase("gather", type="offline", hooks=("collect_codes",), duration_cycles=1)
    learn = phase("learn", type="offline", hooks=("update_world_model",), duration_updates=2)
    scheduler = PhaseScheduler(
        [phase("first", hooks=("collect",), duration_steps=10), gather, learn, phase("last")],
        budget=10,
        stepless=("collect_codes",),
    )
    assert walk(scheduler) == ["collect", "collect_codes", "update_world_model", "update_world_model"]


def test_a_budget_that_is_no_multiple_of_a_vector_step_is_not_exceeded():
    """Nor where rows of it were not real, and the rest is less than a step."""
    assert walk(PhaseScheduler([phase()], budget=35, smallest=10)) == ["collect", "update_controller"] * 3
    assert walk(PhaseScheduler([phase()], budget=35, smallest=12), steps=9) == ["collect", "update_controller"] * 3


def test_a_spent_budget_ends_collecting_in_the_middle_of_a_cycle():
    hooks = (HookSpec(name="collect", times=4), "update_controller")
    for kind in ("online", "offline"):
        scheduler = PhaseScheduler([phase(type=kind, hooks=hooks)], budget=25, smallest=10)
        assert walk(scheduler) == ["collect", "collect", "update_controller"]


def test_a_phase_that_the_budget_leaves_less_than_a_step_is_over():
    last = phase("last", type="offline", hooks=("update_world_model",), duration_updates=2)
    phases = [phase("first", hooks=("collect",), duration_steps=25), last]
    scheduler = PhaseScheduler(phases, budget=25, smallest=10)
    assert walk(scheduler) == ["collect", "collect", "update_world_model", "update_world_model"]
    # Of a budget that ends long before, nothing follows.
    assert walk(PhaseScheduler(phases, budget=12, smallest=10)) == ["collect"]


def test_steps_count_only_in_collect():
    scheduler = PhaseScheduler([phase()], budget=100)
    scheduler.advance(scheduler.next_action(), env_steps=10, updates=7)
    scheduler.advance(scheduler.next_action(), env_steps=99, updates=2)
    assert (scheduler.env_steps, scheduler.updates_done) == (10, 2)


def test_evaluation_alone_runs_once():
    assert walk(PhaseScheduler([phase(type="eval_only", hooks=("evaluate",))])) == ["evaluate"]


def test_a_phase_that_can_never_progress_is_an_error_that_names_it():
    scheduler = PhaseScheduler([phase("stuck", type="offline", hooks=("update_world_model",), buffer="replay")])
    with pytest.raises(ConfigError, match=r"stuck.*replay"):
        walk(scheduler, updates=0, limit=1000)


def test_a_hook_draws_from_its_own_buffer_or_from_that_of_the_phase():
    hooks = ("collect", HookSpec(name="update_tokenizer", buffer="tokenizer"), "update_world_model")
    scheduler = PhaseScheduler([phase(hooks=hooks, buffer="episodes", duration_cycles=1)])
    buffers = {}
    while (action := scheduler.next_action()) is not None:
        buffers[action.hook] = action.buffer
        scheduler.advance(action, env_steps=int(action.collects), updates=int(not action.collects))
    assert buffers == {"collect": "episodes", "update_tokenizer": "tokenizer", "update_world_model": "episodes"}


def test_the_buffers_that_are_never_ready_are_named_with_their_hooks():
    hooks = (HookSpec(name="update_a", buffer="first"), "update_b", HookSpec(name="update_c", buffer="first"))
    scheduler = PhaseScheduler([phase("stuck", type="offline", hooks=hooks, buffer="second")])
    with pytest.raises(ConfigError, match=r"\(buffer 'first' of update_a, update_c; buffer 'second' of update_b\)"):
        walk(scheduler, updates=0, limit=1000)


def test_state_resumes_in_the_middle_of_a_cycle():
    hooks = ("collect", HookSpec(name="update_world_model", ratio=0.25), HookSpec(name="update_controller", times=2))
    whole = PhaseScheduler([phase(hooks=hooks)], budget=60)
    expected = walk(whole)
    for cut in range(1, len(expected)):
        first = PhaseScheduler([phase(hooks=hooks)], budget=60)
        begun = walk(first, limit=cut)
        second = PhaseScheduler([phase(hooks=hooks)], budget=60)
        second.set_state(first.get_state())
        assert begun + walk(second) == expected


def test_an_empty_curriculum_is_an_error():
    with pytest.raises(ConfigError, match="no phases"):
        PhaseScheduler([])
