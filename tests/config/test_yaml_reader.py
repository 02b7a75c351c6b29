import pytest

from gymlab.config.yaml_reader import MAX_BYTES, Where, parse_value, parse_yaml, read_yaml
from gymlab.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("3e-4", 3e-4),
        ("1E-3", 1e-3),
        ("10e6", 10e6),
        ("+2.5e4", 2.5e4),
        ("1_0e3", 10e3),
        ("!!float 1e6", 1e6),
        ("20_000", 20_000),
        ("0.25", 0.25),
        ("'1e6'", "1e6"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("on", True),
        ("off", False),
        ("~", None),
        ("2020-01-01", "2020-01-01"),
        ("-inf", "-inf"),
    ],
)
def test_scalars(text, value):
    result = parse_yaml(text, "x.yaml")
    assert result == value
    assert type(result) is type(value)


ANCHORS = """
_a: &a {x: 1, y: 1, z: 1}
_b: &b {x: 2, y: 2}
"""


def test_one_merge_key():
    assert parse_yaml(ANCHORS + "v: {<<: *a, y: 9}", "x.yaml")["v"] == {"x": 1, "y": 9, "z": 1}


def test_of_a_merged_list_the_first_wins():
    assert parse_yaml(ANCHORS + "v: {<<: [*a, *b]}", "x.yaml")["v"] == {"x": 1, "y": 1, "z": 1}


def test_of_two_merge_keys_the_last_wins():
    document = parse_yaml(ANCHORS + "v:\n  <<: *a\n  <<: *b\n  w: 3\n", "x.yaml")
    assert document["v"] == {"x": 2, "y": 2, "z": 1, "w": 3}
    assert document.repeated == {}


def test_own_keys_win_wherever_the_merge_stands():
    assert parse_yaml(ANCHORS + "v:\n  x: 7\n  <<: *a\n", "x.yaml")["v"]["x"] == 7


def test_merges_of_merges():
    text = ANCHORS + "_c: &c {<<: *a, y: 5}\nv: {<<: *c}"
    assert parse_yaml(text, "x.yaml")["v"] == {"x": 1, "y": 5, "z": 1}


def test_keys_know_their_lines_through_merges():
    document = parse_yaml("_a: &a\n  x: 1\nv:\n  <<: *a\n  y: 2\n", "x.yaml")
    assert document["v"].where == {"x": Where("x.yaml", 2), "y": Where("x.yaml", 5)}


def test_the_key_closest_to_the_variant_stands_last():
    document = parse_yaml("_a: &a {x: 1, y: 1}\nv: {<<: *a, x: 2}", "x.yaml")
    assert list(document["v"]) == ["y", "x"]


def test_a_key_given_twice_is_told_and_the_last_counts():
    document = parse_yaml("v:\n  x: 1\n  x: 2\n", "x.yaml")
    assert document["v"] == {"x": 2}
    assert list(document.repeated) == ["x.yaml:3: `x` is given twice; the last one counts."]


def test_keys_are_text():
    assert parse_yaml("{0: left, true: yes, 1.5: x}", "x.yaml") == {"0": "left", "true": True, "1.5": "x"}


def test_merging_what_is_no_mapping_is_an_error():
    with pytest.raises(ConfigError, match=r"x.yaml:1: `<<` merges mappings"):
        parse_yaml("v: {<<: 3}", "x.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("[64, 64]", [64, 64]),
        ("{start: 1e-3, end: 0}", {"start": 1e-3, "end": 0}),
        ("null", None),
        ("", ""),
        ("some text: with a colon: twice", "some text: with a colon: twice"),
        ("abc/@best", "abc/@best"),
        ("@last/@best", "@last/@best"),
    ],
)
def test_values_of_a_command_line(text, value):
    assert parse_value(text) == value


HOSTILE = {
    "object": "a: !!python/object/apply:os.system ['echo hi']",
    "name": "a: !!python/name:os.system",
    "module": "a: !!python/module:os",
    "new": "a: !!python/object/new:type {}",
    "own tag": "a: !custom {x: 1}",
    "binary": "a: !!binary aGVsbG8=",
    "set": "a: !!set {x, y}",
    "deep": "[" * 5000 + "]" * 5000,
    "deep mapping": "{a: " * 500 + "1" + "}" * 500,
    "recursion": "a: &a [*a]",
    "recursive mapping": "a: &a {b: *a}",
    "recursive merge": "a: &a {<<: *a}",
    "alias bomb": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)),
    "merge bomb": "a0: &a0 {x: 1}\n"
    + "\n".join(f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10)),
    "long number": "a: " + "9" * 10_000,
    "unknown alias": "a: *nothing",
    "two documents": "a: 1\n---\nb: 2",
    "complex key": "? [a, b]\n: 1",
    "tabs": "a:\n\t- b",
    "control": "a: \x07",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_yaml_is_refused_with_a_short_message(text, tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"evil.yaml") as refusal:
        read_yaml(path)
    assert len(str(refusal.value)) < 400


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("a: 1\n" + "#" * MAX_BYTES)
    with pytest.raises(ConfigError, match="more than a config file may have"):
        read_yaml(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match="not a UTF-8"):
        read_yaml(path)


def test_missing_file_and_wrong_kind(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")
    path = tmp_path / "list.yaml"
    path.write_text("[1, 2]")
    with pytest.raises(ConfigError, match="holds a list"):
        read_yaml(path)
    path.write_text("")
    assert read_yaml(path) == {}
