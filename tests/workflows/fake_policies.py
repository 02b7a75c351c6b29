"""Policies whose values and probabilities are known."""

import numpy as np


class LinearPolicy:
    """Value = 10 x the first number observed; every action equally likely."""

    def __init__(self, parameter_size: int, *, collects_values: bool = False) -> None:
        self.parameter_size = parameter_size
        self.collects_values = collects_values

    def __call__(self, x):
        return self.actor(x), self.critic(x)

    def actor(self, x):
        return np.zeros((len(x), self.parameter_size), np.float32)

    def critic(self, x):
        return 10 * x[:, 0]
