"""What a `_target_` may name: registered components and an explicit list of torch classes. Nothing is imported by path.

A config that comes with somebody's model must not be able to run code, and a test of the prefix is no wall
(`torch.nn.parameter.torch.os` is `os`): a name is either in the registry or in the list below, letter by letter.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymlab.config.wording import hint
from gymlab.errors import ConfigError, Unregistered
from gymlab.registry import Registry

COMPONENTS: Registry[Callable[..., Any]] = Registry("component")
"""Names that `_target_` may give; components and plugins register themselves here."""

_OPTIMIZERS = "Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD"
_MODULES = (
    "Linear Bilinear Identity Flatten Unflatten Sequential ModuleList Embedding Dropout "
    "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d MaxPool2d AvgPool2d AdaptiveAvgPool2d Upsample "
    "ReLU LeakyReLU ELU SELU CELU GELU SiLU Mish Tanh Sigmoid Softplus Softmax LogSoftmax Hardtanh "
    "LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d GRU GRUCell LSTM LSTMCell MultiheadAttention "
    "TransformerEncoder TransformerEncoderLayer "
    "MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss BCEWithLogitsLoss"
)
TORCH_NAMES = frozenset(
    [f"torch.optim.{name}" for name in _OPTIMIZERS.split()] + [f"torch.nn.{name}" for name in _MODULES.split()]
)
"""Torch classes that `_target_` may name, by their full dotted names."""

_CLASSES = {
    "actors": {
        "choices": "Choices",
        "normal_actions": "NormalActions",
        "squashed_normal_actions": "SquashedNormalActions",
        "tanh_normal_actions": "TanhNormalActions",
        "truncated_normal_actions": "TruncatedNormalActions",
    },
    "evolution": {"cma_es": "Evolution"},
    "image_codecs": {"image_encoder": "ImageEncoder", "image_decoder": "ImageDecoder"},
    "keras_adam": {"keras_adam": "KerasAdam"},
    "laprop": {"laprop": "LaProp"},
    "latents": {"categorical_latent": "CategoricalLatent", "gaussian_latent": "GaussianLatent"},
    "mdn_rnn": {"mdn_rnn": "MDNRNN"},
    "mpc_planner": {"mpc_planner": "MPCPlanner"},
    "normed_layers": {"block_linear": "BlockLinear", "norm_silu": "NormSiLU", "rms_norm": "RMSNorm"},
    "plain": {"identity": "Identity", "deterministic_mlp": "DeterministicMLP", "random_policy": "RandomPolicy"},
    "rssm": {"rssm": "RSSM", "block_gru": "BlockGRU", "normed_gru": "NormedGRU", "keras_gru": "KerasGRU"},
    "strided_codecs": {"strided_image_encoder": "StridedImageEncoder", "strided_image_decoder": "StridedImageDecoder"},
    "symlog": {"two_hot": "TwoHot", "unit_normal": "UnitNormal"},
    "td_returns": {
        "discounted_return": "DiscountedReturn",
        "lambda_return": "LambdaReturn",
        "n_step_return": "NStepReturn",
        "return_scale": "ReturnScale",
    },
    "vae": {"conv_vae": "ConvVAE"},
}
SHIPPED = {
    name: f"gymlab.components.{module}.{attribute}"
    for module, classes in _CLASSES.items()
    for name, attribute in classes.items()
}
"""Components that ship, by the name that `_target_` gives them; imported when first asked for."""

_OF_METHOD = re.compile(r"^[\w.<>]+\(\) ")
_MARKS = ("_target_", "_partial_")


def check_targets(tree: Any, place: str = "config", path: str = "") -> None:
    """Refuse every `_target_` that is not known by name, wherever it stands, and Hydra's other calling keys."""
    if isinstance(tree, Mapping):
        if "_target_" in tree:
            _check_target(tree, place, path)
        for key, value in tree.items():
            check_targets(value, place, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        for index, value in enumerate(tree):
            check_targets(value, place, f"{path}[{index}]")


def _check_target(node: Mapping[str, Any], place: str, path: str) -> None:
    name = node["_target_"]
    where = f"{place}: {path + '.' if path else ''}_target_"
    if not isinstance(name, str):
        raise ConfigError(f"{where} must be a name, got {name!r}.")
    known = [*COMPONENTS, *SHIPPED, *TORCH_NAMES]
    if name not in known:
        near = hint(name, known)
        raise Unregistered(
            f"{where} names {name!r}, which is refused: it is no registered component and no listed torch class. "
            f"{near}A class of your own is registered in a module given by --plugin."
        )
    if not isinstance(node.get("_partial_", False), bool):
        raise ConfigError(f"{place}: {path}._partial_ expects true or false, got {node['_partial_']!r}.")
    for key in node:
        if key.startswith("_") and key.endswith("_") and key not in _MARKS:
            raise ConfigError(f"{place}: {path}.{key} is not supported; beside _target_ only _partial_ is.")


def instantiate(node: Any, **arguments: Any) -> Any:
    """Build what a node describes, the nodes inside it first; with `_partial_: true` a function that takes the rest."""
    check_targets(node)
    return _build(node, arguments)


def _build(node: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(node, Mapping):
        built = {key: _build(value, {}) for key, value in node.items() if key not in _MARKS}
        if "_target_" not in node:
            return built
        factory = _factory(node["_target_"])
        given = {**built, **arguments}
        if node.get("_partial_"):
            return functools.partial(factory, **given)
        try:
            return factory(**given)
        except TypeError as error:
            raise ConfigError(
                f"{node['_target_']} cannot be built from {', '.join(given) or 'no arguments'}: {_in_words(error)}."
            ) from error
    if isinstance(node, Sequence) and not isinstance(node, str | bytes):
        return [_build(value, {}) for value in node]
    return node


def _in_words(error: TypeError) -> str:
    """Python's complaint about arguments, without the name of a method that the user never wrote."""
    text = _OF_METHOD.sub("it ", str(error))
    if "it missing" not in text:
        return text
    missing = ", ".join(re.findall(r"'(\w+)'", text))
    return (
        f"it needs {missing} as well. Where the algorithm has these to give, write `_partial_: true` beside `_target_`"
    )


def _factory(name: str) -> Callable[..., Any]:
    if name in COMPONENTS:
        return COMPONENTS.get(name)
    module, _, attribute = SHIPPED.get(name, name).rpartition(".")
    return getattr(importlib.import_module(module), attribute)
