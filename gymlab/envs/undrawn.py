"""CarRacing repeated without drawing what nobody sees: its pictures take 99% of a step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class UndrawnCarRacing(gym.Wrapper):
    """Offers `repeat`, which draws the last picture only; what happens on the track is the same."""

    def repeat(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any], int]:
        """Take an action `count` times or until the episode ends; ends with the number of steps taken."""
        race: Any = self.env.unwrapped
        total, taken, over = 0.0, 0, False
        while taken < count and not over:
            drawn = taken == count - 1 or self.render_mode == "human"
            if not drawn:
                # `step` asks the environment itself for a picture: for this step it is given the one it has.
                race._render = lambda mode: race.state
            try:
                observation, reward, terminated, truncated, info = self.env.step(action)
            finally:
                race.__dict__.pop("_render", None)
            total, taken, over = total + float(reward), taken + 1, terminated or truncated
        if not drawn:
            observation = race.state = race._render("state_pixels")
        return observation, total, terminated, truncated, info, taken
