"""Columns, samples and buckets against numpy on the whole file."""

import os
import time

import numpy as np
import pytest

from gymlab.inspector.table import (
    AT_ONCE_BYTES,
    MetricsTable,
    Tables,
    buckets,
    parse_lines,
    parse_odd_lines,
)
from gymlab.plain_files import NotPlainFile

ROWS, WIDTH = 30_000, 12


def write_csv(path, values, *, header=True):
    """A metrics.csv as a run writes it; NaN is an empty cell."""
    with path.open("w" if header else "a") as file:
        if header:
            file.write(",".join(f"m{index}" for index in range(values.shape[1])) + "\n")
        for row in values:
            file.write(",".join("" if np.isnan(value) else repr(float(value)) for value in row) + "\n")


@pytest.fixture(scope="module")
def values():
    generator = np.random.default_rng(0)
    made = generator.normal(size=(ROWS, WIDTH)) * 10.0 ** generator.integers(-9, 9, size=(ROWS, WIDTH))
    made[:, 0] = np.arange(1, ROWS + 1) * 256
    made[np.arange(ROWS) % 100 != 0, 3] = np.nan
    made[:, 4] = np.nan
    return made


@pytest.fixture(scope="module")
def big(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("big") / "metrics.csv"
    write_csv(path, values)
    return path


def read_all(table, names):
    while not table.advance(names, 100_000):
        pass
    return table.columns(names)


def test_columns_read_in_pieces_are_those_of_the_file_to_the_bit(big, values):
    table = MetricsTable(big)
    columns = read_all(table, ["m0", "m3", "m4", "m11", "unknown"])
    assert list(columns) == ["m0", "m3", "m4", "m11"]
    for name, place in (("m0", 0), ("m3", 3), ("m4", 4), ("m11", 11)):
        np.testing.assert_array_equal(columns[name], values[:, place])
    later = read_all(table, ["m7", "m0"])
    np.testing.assert_array_equal(later["m7"], values[:, 7])
    assert table.odd_rows == 0


def test_buckets_are_mean_least_and_greatest_of_neighbouring_rows(values):
    place, mean, low, high = buckets(values[:, 0], values[:, 5], 400)
    starts = [int(ROWS * index / 400) for index in range(400)] + [ROWS]
    for index in range(400):
        part = slice(starts[index], starts[index + 1])
        assert mean[index] == pytest.approx(values[part, 5].mean(), rel=1e-9)
        assert place[index] == pytest.approx(values[part, 0].mean())
        assert (low[index], high[index]) == (values[part, 5].min(), values[part, 5].max())
    assert (low.min(), high.max()) == (values[:, 5].min(), values[:, 5].max())


def test_rows_without_a_value_take_no_part_and_few_rows_stay_as_they_are(values):
    place, mean, low, high = buckets(values[:, 0], values[:, 3], 400)
    filled = np.arange(0, ROWS, 100)
    np.testing.assert_array_equal(place, values[filled, 0])
    np.testing.assert_array_equal(mean, values[filled, 3])
    assert low is mean
    assert high is mean
    assert [len(part) for part in buckets(values[:, 0], values[:, 4], 400)] == [0, 0, 0, 0]
    odd = np.array([1.0, np.inf, -np.inf, np.nan, 2.0])
    np.testing.assert_array_equal(buckets(np.arange(5.0), odd, 10)[1], [1.0, 2.0])


def test_a_sample_has_true_rows_from_the_first_to_the_last(big, values):
    table = MetricsTable(big)
    sample = table.sample(["m0", "m5"], 200)
    assert 150 <= len(sample["m0"]) <= 200
    rows = (sample["m0"] / 256).astype(int) - 1
    np.testing.assert_array_equal(sample["m5"], values[rows, 5])
    assert rows[0] == 0
    assert rows[-1] == ROWS - 1
    assert np.diff(rows).max() < 3 * ROWS / 200


def test_a_short_file_is_sampled_whole(tmp_path, values):
    path = tmp_path / "metrics.csv"
    write_csv(path, values[:7])
    np.testing.assert_array_equal(MetricsTable(path).sample(["m0"], 100)["m0"], values[:7, 0])


def test_only_new_bytes_are_read_and_a_torn_line_waits(tmp_path, values, monkeypatch):
    path = tmp_path / "metrics.csv"
    write_csv(path, values[:100])
    tables = Tables()
    table = tables.open(path)
    assert tables.read(table, ["m0", "m5"])
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, at: read.append(at) or pread(file, count, at))
    before = path.stat().st_size
    write_csv(path, values[100:103], header=False)
    with path.open("a") as file:
        file.write("768,1.5,")
    assert tables.open(path) is table
    assert tables.read(table, ["m0", "m5"])
    np.testing.assert_array_equal(table.columns(["m0"])["m0"], values[:103, 0])
    assert min(read) == before
    with path.open("a") as file:
        file.write("," * (WIDTH - 3) + "\n")
    assert tables.read(table, ["m0"])
    assert table.columns(["m0"])["m0"][-1] == 768


def test_a_file_put_in_its_place_is_read_anew(tmp_path, values):
    path = tmp_path / "metrics.csv"
    write_csv(path, values[:50])
    tables = Tables()
    first = tables.open(path)
    assert tables.read(first, ["m0"])
    wider = tmp_path / "wider"
    write_csv(wider, values[:50][:, :6])
    wider.replace(path)
    second = tables.open(path)
    assert second.generation > first.generation
    assert second.names == [f"m{index}" for index in range(6)]
    path.unlink()
    assert tables.open(path) is None


def test_a_long_file_is_read_in_the_background(big, values):
    assert big.stat().st_size > AT_ONCE_BYTES
    tables = Tables()
    table = tables.open(big)
    assert not tables.read(table, ["m0", "m9"])
    end = time.monotonic() + 20
    while not tables.read(table, ["m0", "m9"]):
        assert time.monotonic() < end
        time.sleep(0.02)
    np.testing.assert_array_equal(table.columns(["m9"])["m9"], values[:, 9])


def test_damaged_lines_are_left_out_and_counted(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"a,b\n1,2\nx,3\n4\n5,6,7\n\xff\xfe,8\n9,10\n")
    table = MetricsTable(path)
    columns = read_all(table, ["a", "b"])
    np.testing.assert_array_equal(columns["a"], [1, np.nan, 4, 5, np.nan, 9])
    np.testing.assert_array_equal(columns["b"], [2, 3, np.nan, 6, 8, 10])
    assert table.odd_rows == 4


def test_both_ways_of_reading_lines_agree():
    lines = b"1,,nan\n,-inf,1e-300\n3.5,2,0.1\n"
    quick = parse_lines(lines, 3, [0, 1, 2])
    slow, odd = parse_odd_lines(lines, 3, [0, 1, 2])
    assert odd == 0
    np.testing.assert_array_equal(quick, slow)
    np.testing.assert_array_equal(quick[1], [np.nan, -np.inf, 2])
    assert parse_lines(b"1,2,3\n4,5\n6\n", 3, [0]) is None


def test_empty_and_headless_files(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("")
    assert MetricsTable(path).names == []
    path.write_text("a,b")
    assert MetricsTable(path).names == []
    path.write_text("a,b\n")
    table = MetricsTable(path)
    assert read_all(table, ["a"])["a"].tolist() == []
    assert table.sample(["a"], 10)["a"].tolist() == []
    assert table.sample(["unknown"], 10) == {}


def test_a_line_without_end_is_damage(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"a,b\n" + b"1" * 300_000)
    table = MetricsTable(path)
    assert table.advance(["a"], 100_000)
    assert table.damage == "metrics.csv is damaged: it has a line of more than 100,000 bytes."


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "real.csv").write_text("a\n1\n")
    (tmp_path / "metrics.csv").symlink_to(tmp_path / "real.csv")
    with pytest.raises(NotPlainFile, match=r"metrics\.csv is a link"):
        MetricsTable(tmp_path / "metrics.csv")
