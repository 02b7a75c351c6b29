"""Tests an environment before anything is trained on it: each finding says what is wrong and how to mend it.

Whatever runs code of the environment does so in a process of its own, so that one that crashes, freezes or changes the process fails one check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.config.schema import Config
from gymlab.envs.build import Blueprint, blueprint, measure_apart
from gymlab.envs.check import measure, rules, streams
from gymlab.envs.check.findings import CHECKS, Finding, failed, skipped, warning
from gymlab.envs.check.play import play
from gymlab.envs.check.streams import TRACE_STEPS, Trace
from gymlab.envs.contract import WrongAnswer
from gymlab.envs.crash import describe_crash
from gymlab.envs.vector import Seeds
from gymlab.envs.worker import Failed, call_apart
from gymlab.envs.wrappers.registry import needs_shared_state, wrapper_classes
from gymlab.errors import GymlabError, NotInstalled

__all__ = ["CHECKS", "Finding", "check_environment", "fresh_trace"]

TIMEOUT = 120.0
"""Seconds that a check may take."""
PLAYED = ("api", "observation", "action", "finite", "reward", "episode")
"""Checks that random steps in the bare environment decide."""
PURPOSE = "check"
SHORT_EPISODE = 50
"""Time limit in vectors, so that episodes end while they are compared."""


def check_environment(config: Config, seeds: Seeds, steps: int, fresh: Callable[[], Trace]) -> Iterator[Finding]:
    """All findings, one by one. `fresh` gives what `fresh_trace` is in a process that was started from nothing."""
    plan = blueprint(config, seeds, PURPOSE)
    made = _apart("make", partial(_made, plan))
    yield from made
    if made[0].state == "failed":
        return
    played = _apart("api", partial(_played, plan, steps))
    yield from played
    broken = {finding.check for finding in played if finding.state == "failed"} & {"api", "observation", "action"}
    if broken:
        for check in list(CHECKS)[len(PLAYED) + 1 :]:
            yield skipped(check, f"put {' and '.join(sorted(broken))} right first")
        return
    compared = min(steps, TRACE_STEPS)
    yield from _apart("shown", partial(_shown, plan, compared))
    yield from _apart("seeding", partial(_one, streams.seeding, plan, compared))
    yield from _apart("replay", partial(_one, streams.replay, plan, compared, fresh))
    yield from _vectors(plan, seeds, compared)
    yield from _apart("frame", partial(_one, measure.frame, plan))
    yield _speed(plan, seeds)


def fresh_trace(config: Config, seeds: Seeds, steps: int) -> Trace:
    """The episode that the check `replay` compares with its own."""
    plan = replace(blueprint(config, seeds, PURPOSE), seeds=None)
    return streams.seeded_trace(plan.make(0), 1, min(steps, TRACE_STEPS))


def _one(check: Callable[..., Finding], *arguments: Any) -> list[Finding]:
    return [check(*arguments)]


def _apart(check: str, work: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of `work`, done in a process of its own; one failed finding of `check` when it does not get through."""
    answer = call_apart(work, TIMEOUT)
    if not isinstance(answer, Failed):
        return answer
    if isinstance(answer.own_error, NotInstalled):
        raise answer.own_error
    return [_did_not_get_through(check, answer.cause)]


def _did_not_get_through(check: str, cause: str) -> Finding:
    detail, _, code = cause.strip().partition("\n")
    return failed(check, detail, code)


def _made(plan: Blueprint) -> list[Finding]:
    env = plan.family.make(plan.spec.id, plan.env_kwargs, None)
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            return [failed("make", f"it has no {name}", f"Set `self.{name}` in `__init__`.")]
    return [Finding("make", "ok", f"{type(env.unwrapped).__name__} ({plan.family.name})")]


def _played(plan: Blueprint, steps: int) -> list[Finding]:
    env = plan.family.make(plan.spec.id, plan.env_kwargs, None)
    try:
        record = play(env, plan.spec.max_episode_steps, steps)
    except WrongAnswer as error:
        return [failed("api", error.detail, error.advice)]
    return rules.judge(record, plan.spec)


def _shown(plan: Blueprint, steps: int) -> list[Finding]:
    env = replace(plan, seeds=None, shared={}).make(0)
    try:
        return [rules.shown(play(env, None, steps))]
    except WrongAnswer as error:
        return [failed("shown", error.detail, f"A wrapper is wrong about what it gives. {error.advice}")]


def _vectors(plan: Blueprint, seeds: Seeds, steps: int) -> Iterator[Finding]:
    """Sync and async against single environments, each of these in a process of its own."""
    limit = min(plan.spec.max_episode_steps or SHORT_EPISODE, SHORT_EPISODE)
    plan = blueprint(plan.config.model_copy(update={"max_episode_steps": limit}), seeds, PURPOSE)
    count = 1 if plan.config.vectorization_mode == "async" else 2
    actions = _actions(plan, count, steps)
    if isinstance(actions, Failed):
        yield _did_not_get_through("sync", actions.cause)
        return
    alone = [call_apart(partial(streams.single_stream, plan, index, actions[index]), TIMEOUT) for index in range(count)]
    for answer in alone:
        if isinstance(answer, Failed):
            yield _did_not_get_through("sync", answer.cause)
            return
    yield from _apart("sync", partial(_one, streams.same_stream, "sync", plan, seeds, actions, alone))
    sharing = [wrapper.__name__ for wrapper in wrapper_classes(plan.config.env_wrappers) if needs_shared_state(wrapper)]
    if sharing:
        yield skipped("async", f"the state of {sharing[0]} is one for all environments")
    elif not plan.family.can_fork:
        yield skipped("async", "it does not work in a forked process")
    else:
        yield _here("async", partial(streams.same_stream, "async", plan, seeds, actions, alone))


def _actions(plan: Blueprint, count: int, steps: int) -> Any:
    """Random actions for each of `count` environments."""

    def sample() -> list[list[Any]]:
        space = replace(plan, seeds=None, shared={}).make(0).action_space
        space.seed(3)
        return [[space.sample() for _ in range(steps)] for _ in range(count)]

    return call_apart(sample, TIMEOUT)


def _here(check: str, work: Callable[[], Finding]) -> Finding:
    """A check whose environments have processes of their own already."""
    try:
        return work()
    except NotInstalled:
        raise
    except GymlabError as error:
        return _did_not_get_through(check, str(error))
    except Exception as error:  # An environment may raise anything.
        return _did_not_get_through(check, describe_crash(error))


def _speed(plan: Blueprint, seeds: Seeds) -> Finding:
    pace = measure_apart(plan, TIMEOUT)
    if isinstance(pace, Failed):
        return _did_not_get_through("speed", pace.cause)
    found = _here("speed", partial(measure.speed, plan, seeds, pace))
    return warning("speed", found.detail, found.advice) if found.state == "failed" else found
