"""Phases as people write them, into `Phase`: default hooks, aliases of durations, and everything else as options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymlab.config.schema import Phase
from gymlab.config.validation import validate
from gymlab.config.wording import hint
from gymlab.errors import ConfigError

DEFAULT_HOOKS = {
    "online": ("collect", "update_world_model", "update_controller"),
    "offline": ("update_world_model", "update_controller"),
    "eval_only": ("evaluate",),
}
DURATIONS = {
    "duration_steps": "duration_steps",
    "steps": "duration_steps",
    "duration_updates": "duration_updates",
    "updates": "duration_updates",
    "duration_cycles": "duration_cycles",
    "cycles": "duration_cycles",
}
PHASE_KEYS = ("name", "type", "hooks", "workflow_hooks", "buffer", "until", "options")
"""Keys that every phase may have, beside its durations."""
_HOOK_KEYS = ("times", "ratio", "buffer")


def parse_phases(phases: Any, source: str = "training.phases") -> tuple[Phase, ...]:
    """Validated phases from the list under `training.phases` (or a workflow's own list)."""
    if isinstance(phases, Mapping):
        phases = [phases]
    if not isinstance(phases, Sequence) or isinstance(phases, str):
        raise ConfigError(f"{source}: expected a list of phases, got {phases!r}.")
    parsed = tuple(_parse_phase(phase, index, source) for index, phase in enumerate(phases))
    names = [phase.name for phase in parsed]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source}: two phases are named {name!r}; give each a name of its own.")
    return parsed


def _parse_phase(raw: Any, index: int, source: str) -> Phase:
    if isinstance(raw, Phase):
        return raw
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{source}[{index}]: expected a mapping with name, type and hooks, got {raw!r}.")
    name = str(raw.get("name", f"phase_{index}"))
    place = f"{source}, phase {name!r}"
    kind = raw.get("type")
    if kind is None:
        raise ConfigError(f"{place}: has no `type`. Give one of {', '.join(DEFAULT_HOOKS)}.")
    if kind not in DEFAULT_HOOKS:
        near = hint(str(kind), DEFAULT_HOOKS)
        raise ConfigError(f"{place}: unknown type {kind!r}. {near}Known: {', '.join(DEFAULT_HOOKS)}.")
    fields: dict[str, Any] = {"name": name, "type": kind, "hooks": _hooks(raw, kind, place), "options": {}}
    for key, value in raw.items():
        if key in ("name", "type", "hooks", "workflow_hooks"):
            continue
        if key in DURATIONS:
            _set_duration(fields, DURATIONS[key], value, place)
        elif key in ("until", "buffer"):
            fields[key] = value
        elif key == "options" and isinstance(value, Mapping):
            fields["options"] |= dict(value)
        else:
            fields["options"][key] = value
    return validate(Phase, fields, place)


def _set_duration(fields: dict[str, Any], key: str, value: Any, place: str) -> None:
    if fields.get(key) is not None and value is not None:
        raise ConfigError(f"{place}: `{key}` is given twice, once by its short name.")
    if value is not None:
        fields[key] = value


def _hooks(raw: Mapping[str, Any], kind: str, place: str) -> list[dict[str, Any]]:
    if "hooks" in raw and "workflow_hooks" in raw:
        raise ConfigError(f"{place}: has both `hooks` and `workflow_hooks`; they mean the same, keep one.")
    hooks = raw.get("hooks", raw.get("workflow_hooks", DEFAULT_HOOKS[kind]))
    if isinstance(hooks, str | Mapping):
        hooks = [hooks]
    if not hooks:
        raise ConfigError(
            f"{place}: has an empty list of hooks. Leave `hooks` out for {', '.join(DEFAULT_HOOKS[kind])}."
        )
    return [_hook(hook, place) for hook in hooks]


def _hook(raw: Any, place: str) -> dict[str, Any]:
    """`collect`, `{name: collect, times: 4}`, `{hook: collect}` or `{collect: {times: 4}}`."""
    if isinstance(raw, str):
        return {"name": raw}
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{place}: a hook is a name or a mapping such as {{name: collect, times: 4}}, not {raw!r}.")
    hook = dict(raw)
    name = hook.pop("name", None) or hook.pop("hook", None)
    if name is None and len(hook) == 1 and (key := next(iter(hook))) not in _HOOK_KEYS:
        name, inner = key, hook[key]
        if inner is not None and not isinstance(inner, Mapping):
            raise ConfigError(
                f"{place}: `{name}:` takes {{times: N}}, {{ratio: r}} or {{buffer: name}}, got {inner!r}."
            )
        hook = dict(inner or {})
    if name is None:
        raise ConfigError(f"{place}: a hook without a name: {dict(raw)!r}. Write {{name: collect, times: 4}}.")
    for key in hook:
        if key not in _HOOK_KEYS:
            raise ConfigError(
                f"{place}: unknown key `{key}` of hook {name!r}. {hint(key, _HOOK_KEYS)}Known: {', '.join(_HOOK_KEYS)}."
            )
    return {"name": name, **hook}
