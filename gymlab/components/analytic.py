"""The gradient of the whole PPO loss for MLP actor-critics, written out.

For networks this small autograd spends more time on its graph than on arithmetic. Here the forward and the backward pass
are a fixed list of matrix products on preallocated memory, and gradients land where the optimizer reads them. `S` trunks
(1 shared, or actor and critic) go through each product together as a stack.

    forward                                            backward (d_ is dL/d_)

    x [B, D]                                           d_weight_1 = d_z_1' x,  d_bias_1 = sum_B d_z_1
      | z_1 = x weight_1' + bias_1                       ^ d_z_1 = d_h_1 act'(h_1)
      | h_1 = act(z_1)           [S, B, H]               | d_h_1 = d_z_2 weight_2,  d_weight_2 = d_z_2' h_1, ...
      | ... one pair a layer                             ^ d_z_L = d_h_L act'(h_L)
      v                                                  | d_h_L = d_parameters weight_actor  (stack 0)
    parameters = h_L[0]  weight_actor'  + bias           |       + d_values     weight_critic (stack S-1)
    values     = h_L[-1] weight_critic' + bias         d_parameters = pullback(d_log_prob, d_entropy)
      |                                                  ^ d_log_prob = -A r / B where the clip is not active, else 0
      v                                                  | d_entropy  = -ent_coef / B
    log_prob, entropy -> r = exp(log_prob - old)         | d_values   = vf_coef (V - R) / B where V is not clipped
    L = -min(r A, clip(r) A) + vf_coef 1/2 (V - R)^2 - ent_coef H     (means over B)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from gymlab.components.distributions import Distribution
from gymlab.components.flat import FlatParameters
from gymlab.components.minibatch import STATISTICS, Coefficients, Minibatch
from gymlab.components.networks import ActorCritic, MLPTrunk

TANH_BACKWARD = torch.ops.aten.tanh_backward.grad_input
RELU_BACKWARD = torch.ops.aten.threshold_backward.grad_input
STATISTIC_SCALE = np.array([-1, 0.5, 1, 1, 1], np.float32)
"""From means of the terms to STATISTICS: losses are the negated objective and half the squared error."""


class StackedMLP:
    """An MLP actor-critic as numpy views of its weights: what it learns is acted on at once, without a copy.

    Layer l of all S trunks is one weight [S, out, in] and one bias [S, 1, out].
    """

    collects_values = False
    """Values of a whole rollout are cheapest in one go, after it."""

    def __init__(self, network: ActorCritic, flat: FlatParameters) -> None:
        prefixes = ["trunk"] if network.spec.shared_trunk else ["actor_trunk", "critic_trunk"]
        self.stack = len(prefixes)
        self.depth = len(network.trunks[0].layers)
        self.relu = network.spec.activation == "relu"

        def views(gradient: bool) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, np.ndarray]]:
            weights, biases = (
                [
                    flat.numpy_view(*(f"{prefix}.layers.{layer}.{kind}" for prefix in prefixes), gradient=gradient)
                    for layer in range(self.depth)
                ]
                for kind in ("weight", "bias")
            )
            heads = {
                name: flat.numpy_view(name, gradient=gradient)[0]
                for name in flat.places
                if "_head." in name or name == "log_std"
            }
            return weights, [bias[:, None, :] for bias in biases], heads

        self.weights, self.biases, self.heads = views(gradient=False)
        self.weight_gradients, self.bias_gradients, self.head_gradients = views(gradient=True)
        self.transposed = [weight.transpose(0, 2, 1) for weight in self.weights]

    @staticmethod
    def fits(network: nn.Module, flat: FlatParameters) -> str:
        """Why `network` cannot be run this way; empty when it can."""
        if flat.parameter.device.type != "cpu":
            return f"its parameters are on {flat.parameter.device}, and numpy works on the CPU"
        if type(network) is not ActorCritic or not all(isinstance(trunk, MLPTrunk) for trunk in network.trunks):
            return "only plain MLP actor-critics have it"
        if network.spec.activation not in ("tanh", "relu"):
            return f"it knows tanh and relu, not {network.spec.activation}"
        return ""

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations [B, ...] -> distribution parameters [B, P] and values [B]."""
        return self.actor(x), self.critic(x)

    def actor(self, x: np.ndarray) -> np.ndarray:
        """Observations [B, ...] -> distribution parameters [B, P]."""
        parameters = self._features(x, 0) @ self.heads["actor_head.weight"].T
        parameters += self.heads["actor_head.bias"]
        log_std = self.heads.get("log_std")
        if log_std is None:
            return parameters
        return np.concatenate([parameters, np.broadcast_to(log_std, parameters.shape)], axis=-1)

    def critic(self, x: np.ndarray) -> np.ndarray:
        """Observations [B, ...] -> values [B]."""
        return self._features(x, self.stack - 1) @ self.heads["critic_head.weight"][0] + self.heads["critic_head.bias"]

    def hidden(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Observations [B, ...] -> outputs [S, B, H] of each layer."""
        x = x.reshape(len(x), -1)
        for transposed, bias in zip(self.transposed, self.biases, strict=True):
            x = np.matmul(x, transposed)
            x += bias
            np.maximum(x, 0, out=x) if self.relu else np.tanh(x, out=x)
            yield x

    def _features(self, x: np.ndarray, trunk: int) -> np.ndarray:
        x = x.reshape(len(x), -1)
        for transposed, bias in zip(self.transposed, self.biases, strict=True):
            x = x @ transposed[trunk]
            x += bias[trunk]
            if self.relu:
                np.maximum(x, 0, out=x)
            else:
                np.tanh(x, out=x)
        return x


class Workspace:
    """Arrays for one batch size, and the same memory as tensors where torch's element-wise kernels are the faster."""

    def __init__(self, size: int, mlp: StackedMLP, parameter_size: int) -> None:
        widths = [weight.shape[1] for weight in mlp.weights]
        self.size = size
        self.hidden = [np.empty((mlp.stack, size, width), np.float32) for width in widths]
        self.gradients = [np.empty((mlp.stack, size, width), np.float32) for width in widths]
        self.hidden_torch = [torch.from_numpy(array) for array in self.hidden]
        self.gradients_torch = [torch.from_numpy(array) for array in self.gradients]
        self.parameters = np.empty((parameter_size, size), np.float32)
        """Transposed: reductions over a handful of actions then run along the long axis."""
        self.values = np.empty(size, np.float32)
        self.ones = np.ones((1, size), np.float32)
        self.terms = np.empty((len(STATISTICS), size), np.float32)
        """What the statistics are means of."""
        self.mean_weights = np.full(size, 1 / size, np.float32)


class AnalyticGradient:
    """Fills the flat gradient with the gradient of the PPO loss on a minibatch."""

    def __init__(self, network: ActorCritic, flat: FlatParameters, distribution: Distribution) -> None:
        self.mlp = StackedMLP(network, flat)
        self.distribution = distribution
        self._biases_torch = [torch.from_numpy(bias) for bias in self.mlp.biases]
        self._workspace = Workspace(1, self.mlp, distribution.parameter_size)

    def __call__(self, batch: Minibatch, coefficients: Coefficients) -> np.ndarray:
        """Gradient of the loss on `batch`; returns STATISTICS."""
        if len(batch.advantages) != self._workspace.size:
            self._workspace = Workspace(len(batch.advantages), self.mlp, self.distribution.parameter_size)
        x = batch.observations.reshape(self._workspace.size, -1)
        parameters, values = self._forward(x)
        d_parameters, d_values, statistics = self._loss(parameters, values, batch, coefficients)
        self._backward(x, d_parameters, d_values)
        return statistics

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mlp, work = self.mlp, self._workspace
        for layer, hidden in enumerate(work.hidden_torch):
            np.matmul(x, mlp.transposed[layer], out=work.hidden[layer])  # [B, D] or [S, B, H] -> [S, B, H]
            hidden.add_(self._biases_torch[layer])
            (torch.relu_ if mlp.relu else torch.tanh_)(hidden)
            x = work.hidden[layer]
        actor, critic = (x[0], x[-1]) if mlp.depth else (x, x)
        size = self.distribution.head_size
        np.matmul(mlp.heads["actor_head.weight"], actor.T, out=work.parameters[:size])
        work.parameters[:size] += mlp.heads["actor_head.bias"][:, None]
        if self.distribution.free_size:
            work.parameters[size:] = mlp.heads["log_std"][:, None]
        np.matmul(critic, mlp.heads["critic_head.weight"][0], out=work.values)
        work.values += mlp.heads["critic_head.bias"]
        return work.parameters.T, work.values

    def _loss(
        self, parameters: np.ndarray, values: np.ndarray, batch: Minibatch, coefficients: Coefficients
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """dL/dparameters [B, P], dL/dvalues [B] and the statistics."""
        work = self._workspace
        scale = np.float32(1 / work.size)
        epsilon = np.float32(coefficients.clip_range)
        parameters = self.distribution.mask(parameters, batch.action_masks)
        log_prob, entropy, pullback = self.distribution.with_gradient(parameters, batch.actions)
        log_ratio = log_prob - batch.log_probs
        ratio = np.exp(log_ratio)
        clipped_ratio = np.minimum(np.maximum(ratio, 1 - epsilon), 1 + epsilon)
        objective = ratio * batch.advantages
        clipped_objective = clipped_ratio * batch.advantages
        d_log_prob = objective * (objective <= clipped_objective)
        d_log_prob *= -scale
        error = values - batch.returns
        squared = error * error
        if coefficients.clip_range_vf is not None:
            bound = np.float32(coefficients.clip_range_vf)
            move = values - batch.values
            inside = np.abs(move) <= bound
            clipped_error = batch.values + np.clip(move, -bound, bound) - batch.returns
            clipped_error *= clipped_error
            # Inside the bound both errors are one up to rounding, and the gradient flows whichever is the larger.
            error *= inside | (squared >= clipped_error)
            np.maximum(squared, clipped_error, out=squared)
        d_values = error * (np.float32(coefficients.vf_coef) * scale)
        d_parameters = pullback(d_log_prob, -coefficients.ent_coef * float(scale))
        np.minimum(objective, clipped_objective, out=work.terms[0])
        work.terms[1] = squared
        work.terms[2] = entropy
        np.subtract(ratio, log_ratio, out=work.terms[3])
        work.terms[3] -= 1
        np.not_equal(ratio, clipped_ratio, out=work.terms[4])
        return d_parameters, d_values, (work.terms @ work.mean_weights) * STATISTIC_SCALE

    def _backward(self, x: np.ndarray, d_parameters: np.ndarray, d_values: np.ndarray) -> None:
        mlp, work = self.mlp, self._workspace
        size = self.distribution.head_size
        d_head = d_parameters[:, :size]
        features = work.hidden[-1] if mlp.depth else x[None]
        np.matmul(d_head.T, features[0], out=mlp.head_gradients["actor_head.weight"])
        np.matmul(work.ones[0], d_head, out=mlp.head_gradients["actor_head.bias"])
        if self.distribution.free_size:
            np.matmul(work.ones[0], d_parameters[:, size:], out=mlp.head_gradients["log_std"])
        np.matmul(d_values, features[-1], out=mlp.head_gradients["critic_head.weight"][0])
        mlp.head_gradients["critic_head.bias"][0] = d_values.sum()
        if not mlp.depth:
            return
        d_hidden = work.gradients[-1]  # [S, B, H]
        np.matmul(d_head, mlp.heads["actor_head.weight"], out=d_hidden[0])
        if mlp.stack == 1:
            d_hidden[0] += np.dot(d_values[:, None], mlp.heads["critic_head.weight"])
        else:
            np.dot(d_values[:, None], mlp.heads["critic_head.weight"], out=d_hidden[1])
        for layer in reversed(range(mlp.depth)):
            d_z = work.gradients_torch[layer]
            if mlp.relu:
                RELU_BACKWARD(d_z, work.hidden_torch[layer], 0.0, grad_input=d_z)
            else:
                TANH_BACKWARD(d_z, work.hidden_torch[layer], grad_input=d_z)
            d_z_numpy = work.gradients[layer]
            inputs = work.hidden[layer - 1] if layer else x
            np.matmul(d_z_numpy.transpose(0, 2, 1), inputs, out=mlp.weight_gradients[layer])
            np.matmul(work.ones, d_z_numpy, out=mlp.bias_gradients[layer])
            if layer:
                np.matmul(d_z_numpy, mlp.weights[layer], out=work.gradients[layer - 1])
