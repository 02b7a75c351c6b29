"""References between values."""

import pytest

from gymlab.config.interpolation import resolve_references
from gymlab.config.yaml_reader import Located, parse_yaml
from gymlab.errors import ConfigError


def resolved(text: str) -> Located:
    return resolve_references(parse_yaml(text, "x.yaml"), "x.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${params.x}", 3),
        ("${params.name}-${params.x}", "net-3"),
        ("${params.list[1]}", 20),
        ("${params.list.0}", 10),
        ("${params.inner}", {"y": 3}),
        ("${learning_rate}", 0.1),
        ("${experiment.seed}", 7),
        ("${add:1,2}", 3),
        ("${add:${params.x},${params.x},1}", 7),
        ("${sub:5,2}", 3),
        ("${mul:${params.x},2.5}", 7.5),
        ("${div:7,2}", 3.5),
        ("${floordiv:7,2}", 3),
        ("${min:4,2,9}", 2),
        ("${max:4,${add:2,8}}", 10),
        ("${params.function}", 6),
        ("no reference", "no reference"),
    ],
)
def test_what_a_reference_becomes(text, value):
    tree = resolved(
        f"""
seed: 7
policy_lr: 0.1
params: {{x: 3, name: net, list: [10, 20], inner: {{y: "${{params.x}}"}}, function: "${{mul:2,${{params.x}}}}"}}
out: "{text}"
"""
    )
    assert tree["out"] == value
    assert type(tree["out"]) is type(value)


def test_relative_references():
    tree = resolved("a: {lr: 1, inner: {same: '${.other}', other: 2, up: '${..lr}'}}")
    assert tree["a"]["inner"] == {"same": 2, "other": 2, "up": 1}


def test_dimensions_refer_to_each_other():
    tree = resolved("dims: {observation: 4, latent: '${add:${_dims.observation},10}'}\nout: '${_dims.latent}'")
    assert tree["out"] == 14


def test_dimensions_of_the_environment_wait_for_it():
    tree = resolved("dims: {latent: '${add:${_dims.observation},10}'}\nout: ['${_dims.latent}', '${_dims.action}']")
    assert tree["out"] == ["${add:${_dims.observation},10}", "${_dims.action}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${oc.env:HOME}", r"`out` calls \$\{oc.env:...\}, which is refused"),
        ("${oc.decode:x}", "refused"),
        ("${eval:1+1}", "refused"),
        ("${ad:1,2}", "Did you mean 'add'"),
        ("${${params.evil}:HOME}", "must be written out"),
        ("${params.${params.k}}", "must be written out"),
        ("${parms.x}", "there is no parms. Did you mean 'params'"),
        ("${params.z}", "there is no params.z"),
        ("${_dims.latent}", "there is no dims"),
        ("${params.x", "without an end"),
        ("${add:1,text}", "takes numbers"),
        ("${add:1,true}", "takes numbers"),
        ("${sub:1}", "missing 1 required"),
        ("${div:1,0}", "division by zero"),
        ("${out}", "refers to itself"),
        ("${mul:100000000,100000000}", "too large"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        resolved(f"params: {{x: 1, evil: oc.env, k: x}}\nout: '{text}'")


def test_a_bomb_of_references_ends():
    lists = "\n".join(f"a{i}: ['${{a{i - 1}}}', '${{a{i - 1}}}', '${{a{i - 1}}}']" for i in range(1, 20))
    with pytest.raises(ConfigError, match="more than a config may hold"):
        resolved(f"a0: 1\n{lists}")
    texts = "\n".join(f"a{i}: '${{a{i - 1}}}${{a{i - 1}}}'" for i in range(1, 20))
    with pytest.raises(ConfigError, match="longer than"):
        resolved(f"a0: xxxxxxxxxx\n{texts}")
    products = "\n".join(f"a{i}: '${{mul:${{a{i - 1}}},${{a{i - 1}}}}}'" for i in range(1, 20))
    with pytest.raises(ConfigError, match="too large"):
        resolved(f"a0: 10\n{products}")
