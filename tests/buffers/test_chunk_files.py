"""Chunk files are whole or absent, and a hostile one is an error that names it."""

import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.tensor_files import HEADER_LIMIT_BYTES, read_header
from gymlab.errors import CheckpointError

FIELDS = {"image": Field((2, 2), np.uint8), "reward": Field((), np.float64), "is_first": Field((), np.bool_)}


def arrays(rows=3):
    return {
        "image": np.arange(rows * 4, dtype=np.uint8).reshape(rows, 2, 2),
        "reward": np.linspace(0, 1, rows),
        "is_first": np.arange(rows) == 0,
    }


def test_what_is_written_is_mapped_back_read_only(tmp_path):
    files = ChunkFiles(tmp_path / "new")
    reference = files.write("replay-0000", arrays())
    path = tmp_path / "new" / reference.name
    assert reference.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reference.name == f"replay-0000-{reference.sha256[:12]}.safetensors"
    found = files.open(reference, FIELDS, 3)
    for name, array in arrays().items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert not found[name].flags.writeable
        assert not found[name].flags.owndata
    assert [child.name for child in path.parent.iterdir()] == [reference.name]
    files.release(reference)
    np.testing.assert_array_equal(found["image"], arrays()["image"])
    assert not path.exists()


def test_a_chunk_of_a_run_that_is_gone_does_not_bring_it_back(tmp_path):
    files, there = ChunkFiles(tmp_path / "run" / "replay"), ChunkFiles(tmp_path / "replay")
    reference = there.write("a", arrays())
    with pytest.raises(FileNotFoundError):
        files.write("a", arrays())
    with pytest.raises(FileNotFoundError):
        files.adopt(reference, there.path(reference))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dtype", "?BbHhIiQqefd")
def test_every_type_keeps_its_values(tmp_path, dtype):
    values = {"x": np.arange(7).astype(dtype), "odd": np.zeros((7, 3), np.uint8)}
    fields = {"x": Field((), dtype), "odd": Field((3,), np.uint8)}
    files = ChunkFiles(tmp_path)
    np.testing.assert_array_equal(files.open(files.write("a", values), fields, 7)["x"], values["x"])


def test_a_file_moves_without_a_copy(tmp_path):
    here, there = ChunkFiles(tmp_path / "here"), ChunkFiles(tmp_path / "there")
    reference = here.write("a", arrays())
    there.adopt(reference, here.path(reference))
    assert there.path(reference).stat().st_ino == here.path(reference).stat().st_ino
    here.release(reference)
    assert set(there.open(reference, FIELDS, 3)) == set(FIELDS)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "a-000000000000.safetensors",
        {"name": "../a-000000000000.safetensors", "size": 1, "sha256": ""},
        {"name": "/a-000000000000.safetensors", "size": 1, "sha256": ""},
        {"name": "a.safetensors", "size": 1, "sha256": ""},
        {"name": "a-000000000000.safetensors", "size": "1", "sha256": ""},
        {"name": "a-000000000000.safetensors", "size": 1},
    ],
)
def test_references_that_are_none(data):
    with pytest.raises(CheckpointError, match="no chunk file"):
        ChunkReference.from_json(data)


def hostile(tmp_path, header, body=b"", length=None):
    """A file with this header, and a reference that knows its size."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = struct.pack("<Q", len(text) if length is None else length) + text + body
    name = "a-000000000000.safetensors"
    (tmp_path / name).write_bytes(content)
    return ChunkReference(name, len(content), "")


ENTRY = {"dtype": "U8", "shape": [2, 2], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "body", "length", "message"),
    [
        (b"", b"", 2**63, "its header would have"),
        (b"", b"", HEADER_LIMIT_BYTES + 1, "its header would have"),
        (b"{}", b"", 3, "its header would have"),
        (b"{" * 100_000, b"", None, "not JSON"),
        (b"[" * 100_000, b"", None, "not JSON"),
        (b"\xff\xfe", b"", None, "not JSON"),
        ([], b"", None, "names no arrays"),
        ({"x": None}, b"", None, "makes no sense"),
        ({"x": {**ENTRY, "dtype": "O"}}, b"1234", None, "makes no sense"),
        ({"x": {**ENTRY, "dtype": ["U8"]}}, b"1234", None, "makes no sense"),
        ({"x": {**ENTRY, "data_offsets": [0]}}, b"1234", None, "makes no sense"),
        ({"x": {**ENTRY, "data_offsets": [0, 5]}}, b"1234", None, "does not fill its place"),
        ({"x": {**ENTRY, "data_offsets": [1, 5]}}, b"1234", None, "does not fill its place"),
        ({"x": {**ENTRY, "data_offsets": [-4, 0]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": [-2, -2]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": [True, 4]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": [2.0, 2]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": [2**62, 4]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": [1] * 40, "data_offsets": [0, 1]}}, b"1234", None, "outside of the file"),
        ({"x": {**ENTRY, "shape": "22"}}, b"1234", None, "outside of the file"),
        ({"y": ENTRY}, b"1234", None, "x, y differ"),
        ({"x": {**ENTRY, "shape": [4]}}, b"1234", None, "x differ"),
        ({"x": {**ENTRY, "dtype": "I8"}}, b"1234", None, "x differ"),
        ({"x": ENTRY, "z": ENTRY}, b"1234", None, "z differ"),
    ],
)
def test_hostile_headers(tmp_path, header, body, length, message):
    reference = hostile(tmp_path, header, body, length)
    with pytest.raises(CheckpointError, match=message) as error:
        ChunkFiles(tmp_path).open(reference, {"x": Field((2,), np.uint8)}, 2)
    assert reference.name in str(error.value)


def test_the_right_file_at_an_odd_place_is_read(tmp_path):
    header = {"__metadata__": {"by": "me"}, "x": {"dtype": "F64", "shape": [1], "data_offsets": [3, 11]}}
    reference = hostile(tmp_path, header, b"abc" + struct.pack("<d", 2.5))
    assert ChunkFiles(tmp_path).open(reference, {"x": Field((), np.float64)}, 1)["x"].tolist() == [2.5]


def test_a_file_that_is_gone_or_cut_is_named(tmp_path):
    files = ChunkFiles(tmp_path)
    reference = files.write("a", arrays())
    path = files.path(reference)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=f"{reference.name} is damaged: it has {reference.size - 1} bytes"):
        files.open(reference, FIELDS, 3)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{reference.name} cannot be read"):
        files.open(reference, FIELDS, 3)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(content)
    try:
        places = read_header(path)
    except CheckpointError:
        return
    assert all(0 <= low <= high <= len(content) for _, _, (low, high) in places.values())
