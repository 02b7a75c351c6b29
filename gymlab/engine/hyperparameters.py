"""What may change while a run goes on: one small mutable object beside the frozen config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymlab.config import dump
from gymlab.config.derive import check_schedules
from gymlab.config.schema import Config, Schedule, tunable_fields
from gymlab.config.validation import validate
from gymlab.errors import ConfigError, did_you_mean

Value = float | Schedule | None
"""What a hyperparameter may be set to; None where its field allows it."""


def checked_value(config: Config, name: str, value: Any, place: str) -> Value:
    """A value from a file or a command line as the field takes it: judged by the config's own schema and budget."""
    schema = type(config)
    if name not in tunable_fields(schema):
        raise ConfigError(f"{place}: {refusal(schema, name)}")
    data = {**dump(config), name: value}
    changed = validate(schema, data, place)
    check_schedules(changed, data, place)
    found: Value = getattr(changed, name)
    return found


def refusal(schema: type[Config], name: str) -> str:
    """Why a field does not change during a run; the nearest right name for one that does not exist."""
    if name in schema.model_fields:
        return f"`{name}` cannot change while a run trains."
    near = did_you_mean(name, tunable_fields(schema))
    return f"`{name}` is no setting of this run. {near}".rstrip()


def plain(value: Value) -> Any:
    """A value as JSON has it."""
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, Schedule) else value


class Hyperparameters:
    """Current value of every tunable field as a plain attribute: `hyperparameters.policy_lr`.

    A value is the config's number, a schedule's value at the current env step, or what was set during the run; what was set is part of a
    checkpoint.
    """

    def __init__(self, config: Config, budget: int | None) -> None:
        self._budget = budget
        self._schedules: dict[str, Schedule] = {}
        self._schema = type(config)
        self._names = tunable_fields(self._schema)
        self._followed_at = 0
        self.changes: list[dict[str, Any]] = []
        for name in self._names:
            self._take(name, getattr(config, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The current value of the field `name`."""

    def _take(self, name: str, value: Value) -> None:
        self._schedules.pop(name, None)
        if isinstance(value, Schedule):
            self._schedules[name] = value
            value = value.value(self._followed_at, self._budget)
        setattr(self, name, value)

    def follow_schedules(self, env_steps: int) -> None:
        """Set each scheduled value to what its schedule says at `env_steps`; read once before an update, never during one."""
        self._followed_at = env_steps
        for name, schedule in self._schedules.items():
            setattr(self, name, schedule.value(env_steps, self._budget))

    def set(self, name: str, value: Value, *, env_steps: int, reason: str) -> None:
        """Change a value; a schedule that it followed ends, and a new one is followed from the next `follow_schedules` on."""
        if name not in self._names:
            raise ConfigError(f"{refusal(self._schema, name)} What can: {', '.join(self._names)}.")
        before = getattr(self, name)
        self._take(name, value)
        self.changes.append(
            {"name": name, "from": before, "to": plain(value), "env_steps": env_steps, "reason": reason}
        )

    @property
    def moving(self) -> dict[str, float]:
        """Current values of the fields that follow a schedule or were changed, but for those that are None."""
        names = dict.fromkeys([*self._schedules, *(change["name"] for change in self.changes)])
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def get_state(self) -> dict[str, Any]:
        """What was changed, and where the schedules were last read."""
        return {"changes": list(self.changes), "followed_at": self._followed_at}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._followed_at = state.get("followed_at", 0)
        self.changes = list(state["changes"])
        for change in self.changes:
            to = change["to"]
            if change["name"] not in self._names:
                raise ValueError(f"{str(change['name'])[:80]!r} is no hyperparameter")
            self._take(change["name"], Schedule(**to) if isinstance(to, dict) else to)
        self.follow_schedules(self._followed_at)
