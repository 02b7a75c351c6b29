"""Packed files: compressed, small where they can be, and a hostile one is an error that names it before memory is taken."""

import json
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymlab.buffers.chunk_files import ChunkFiles, Field
from gymlab.buffers.tensor_files import HEADER_LIMIT_BYTES, pack, read_packed, read_packed_header
from gymlab.errors import CheckpointError

ENTRY = {"dtype": "U8", "shape": [2, 2], "data_offsets": [0, 4]}


def arrays():
    return {
        "image": np.tile(np.arange(64, dtype=np.uint8), 300).reshape(300, 64),
        "reward": np.linspace(0, 1, 300),
        "odd": np.arange(3, dtype=np.float16),
        "ended": np.array([True, False]),
        "none": np.zeros((0, 4), np.int32),
    }


def test_what_is_packed_is_read_back_with_its_notes(tmp_path):
    path = tmp_path / "a.z"
    path.write_bytes(pack(arrays(), {"return": "1.5", "kind": "best"}))
    assert path.stat().st_size < 19_200 / 2
    found, notes = read_packed(path)
    assert notes == {"return": "1.5", "kind": "best"} == read_packed_header(path).notes
    assert found.keys() == arrays().keys()
    for name, array in arrays().items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert not found[name].flags.writeable


def write(path, header, body=b"", *, length=None, tail=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(header) if length is None else length
    path.write_bytes(zlib.compress(length.to_bytes(8, "little") + header + body) + tail)
    return path


BILLION = 10**9


@pytest.mark.parametrize(
    ("header", "body", "options", "message"),
    [
        (b"", b"", {}, "header would have 0 bytes"),
        (b"{}", b"", {"length": HEADER_LIMIT_BYTES + 1}, "header would have"),
        (b"{}", b"", {"length": 2**63}, "header would have"),
        (b"{}", b"", {"length": 3}, "ends within its header"),
        (b"[" * 100_000, b"", {}, "not JSON"),
        ([], b"", {}, "names no arrays"),
        ({"__metadata__": {"a": 1}}, b"", {}, "no texts"),
        ({"__metadata__": []}, b"", {}, "no texts"),
        ({"x": {**ENTRY, "dtype": "O"}}, b"1234", {}, "makes no sense"),
        ({"x": {**ENTRY, "data_offsets": [-4, 0]}}, b"1234", {}, "outside of the file"),
        ({"x": {**ENTRY, "shape": [2.0, 2]}}, b"1234", {}, "outside of the file"),
        ({"x": ENTRY}, b"123", {}, "does not end where"),
        ({"x": ENTRY}, b"12345", {}, "does not end where"),
        ({"x": ENTRY}, b"1234", {"tail": b"more"}, "does not end where"),
        ({"x": {"dtype": "U8", "shape": [BILLION], "data_offsets": [0, BILLION]}}, b"12", {}, "outside of the file"),
    ],
)
def test_hostile_packed_files(tmp_path, header, body, options, message):
    path = write(tmp_path / "hostile.z", header, body, **options)
    with pytest.raises(CheckpointError, match=message) as error:
        read_packed(path)
    assert "hostile.z" in str(error.value)


def test_a_bomb_takes_no_memory(tmp_path):
    """80 MB of zeros in 80 kB, of which the header claims four bytes, or more than a file of that size can hold."""
    bomb = bytes(80 << 20)
    few = write(tmp_path / "few.z", {"x": ENTRY}, bomb)
    many = write(
        tmp_path / "many.z", {"x": {"dtype": "U8", "shape": [2**30], "data_offsets": [0, 2**30]}}, bomb[: 1 << 20]
    )
    del bomb
    tracemalloc.start()
    for path in (few, many):
        with pytest.raises(CheckpointError, match=path.name):
            read_packed(path)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_flipped_bit_or_a_cut_is_noticed(tmp_path):
    path = tmp_path / "a.z"
    content = pack(arrays())
    for at in (0, 20, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match=r"a\.z"):
            read_packed(path)
        path.write_bytes(content[:at])
        with pytest.raises(CheckpointError, match=r"a\.z"):
            read_packed(path)


def test_a_chunk_is_read_only_as_what_is_expected(tmp_path):
    files = ChunkFiles(tmp_path)
    reference = files.write("episode", {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}, packed=True)
    assert reference.name.endswith(".safetensors.z")
    assert files.read(reference, {"x": Field((2,), np.float32)}, 3)["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    for fields, rows in (({"x": Field((2,), np.float32)}, 4), ({"x": Field((2,), np.int32)}, 3), ({}, 3)):
        with pytest.raises(CheckpointError, match="x differ in name, type or shape"):
            files.read(reference, fields, rows)
    files.path(reference).write_bytes(b"no")
    with pytest.raises(CheckpointError, match="2 bytes instead of"):
        files.hold(reference)
    files.release(reference)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, compressed):
    path = tmp_path_factory.getbasetemp() / "any.z"
    path.write_bytes(zlib.compress(content) if compressed else content)
    try:
        read_packed(path)
    except CheckpointError:
        return
