"""The named controllers of a run: what turns a latent or an observation into an action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from gymlab.errors import ConfigError, did_you_mean


class ControllerManager:
    """Controllers by name. A phase may say which one acts (`controller: planner`)."""

    def __init__(self, controllers: Mapping[str, Any]) -> None:
        self._controllers = dict(controllers)

    def get(self, name: str) -> Any:
        """The controller called `name`."""
        if name not in self._controllers:
            raise ConfigError(
                f"No controller {name!r}. {did_you_mean(name, self._controllers)} Known: {', '.join(self._controllers) or 'none'} "
                "(they are defined under `controllers:`)."
            )
        return self._controllers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._controllers)

    def states(self) -> dict[str, Any]:
        """State of each controller that has one beyond its parameters."""
        return {
            name: controller.get_state()
            for name, controller in self._controllers.items()
            if hasattr(controller, "get_state")
        }

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Take back what `states` gave."""
        for name, state in states.items():
            self.get(name).set_state(state)

    def modules(self) -> dict[str, nn.Module]:
        """Controllers that are networks."""
        return {name: controller for name, controller in self._controllers.items() if isinstance(controller, nn.Module)}

    def to(self, device: torch.device) -> None:
        """Move the networks among the controllers."""
        for controller in self.modules().values():
            controller.to(device)
