"""What may change while a run goes on: one small mutable object beside the frozen config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from gymlab.config.schema import Config, Schedule
from gymlab.errors import ConfigError, did_you_mean


def tunable_fields(schema: type[Config]) -> list[str]:
    """Names of the fields that take a number or a schedule."""
    return [name for name, field in schema.model_fields.items() if Schedule in get_args(field.annotation)]


class Hyperparameters:
    """Current value of every tunable field as a plain attribute: `hyperparameters.policy_lr`.

    A value is the config's number, the schedule's value at the current env step, or what was set by hand; every change by hand is kept with
    its step, so that a resumed run makes it again.
    """

    def __init__(self, config: Config, budget: int | None) -> None:
        self._budget = budget
        self._schedules: dict[str, Schedule] = {}
        self._names = tunable_fields(type(config))
        self.changes: list[dict[str, Any]] = []
        for name in self._names:
            value = getattr(config, name)
            if isinstance(value, Schedule):
                self._schedules[name] = value
                value = value.value(0, budget)
            setattr(self, name, value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The current value of the field `name`."""

    def follow_schedules(self, env_steps: int) -> None:
        """Set each scheduled value to what its schedule says at `env_steps`; read once before an update, never during one."""
        for name, schedule in self._schedules.items():
            setattr(self, name, schedule.value(env_steps, self._budget))

    def set(self, name: str, value: float, *, env_steps: int, reason: str) -> None:
        """Change a value by hand; a schedule on it ends."""
        if name not in self._names:
            raise ConfigError(
                f"{name!r} cannot change during a run. {did_you_mean(name, self._names)} Tunable: {', '.join(self._names)}."
            )
        self._schedules.pop(name, None)
        self.changes.append(
            {"name": name, "from": getattr(self, name), "to": value, "env_steps": env_steps, "reason": reason}
        )
        setattr(self, name, value)

    @property
    def scheduled(self) -> dict[str, float]:
        """Current values of the fields that follow a schedule."""
        return {name: getattr(self, name) for name in self._schedules}

    def get_state(self) -> dict[str, Any]:
        """What was changed by hand."""
        return {"changes": list(self.changes)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Make the changes by hand again."""
        for change in state["changes"]:
            self.set(change["name"], change["to"], env_steps=change["env_steps"], reason=change["reason"])
