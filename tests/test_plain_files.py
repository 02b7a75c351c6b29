"""Files of a run are opened without following a link or waiting for a pipe, and replaced whole."""

import os
import socket

import pytest

from gymlab.errors import GymlabError
from gymlab.plain_files import NotPlainFile, open_plain, replace_file, replacing, unused_name

WAYS = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY | os.O_CREAT,
    "append": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "both": os.O_RDWR | os.O_CREAT,
}


@pytest.mark.parametrize("flags", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", ["link", "dangling link", "link to a pipe", "named pipe", "socket", "directory"])
def test_what_is_no_regular_file_is_named_and_left_alone(tmp_path, monkeypatch, kind, flags):
    path, outside = tmp_path / "run.lock", tmp_path / "outside"
    if kind == "link":
        outside.write_text("precious")
    if kind == "link to a pipe":
        os.mkfifo(outside)
    if "link" in kind:
        path.symlink_to(outside)
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # The name of a socket may not be long.
        socket.socket(socket.AF_UNIX).bind(path.name)
    else:
        path.mkdir()
    before = sorted(tmp_path.iterdir())
    word = "link" if "link" in kind else kind.split()[-1]
    with pytest.raises(NotPlainFile, match=rf"run\.lock is .*{word}.*delete it"):
        open_plain(path, flags)
    assert sorted(tmp_path.iterdir()) == before
    assert kind != "link" or outside.read_text() == "precious"


def test_a_regular_file_is_opened_as_by_the_system(tmp_path):
    path = tmp_path / "run.log"
    for line in ("one", "two"):
        with open(path, "a", opener=open_plain) as file:
            file.write(line + "\n")
    assert path.read_text() == "one\ntwo\n"
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "none", os.O_RDONLY)
    assert issubclass(NotPlainFile, GymlabError)


def test_a_file_is_replaced_and_what_lay_at_its_temporary_name_is_not_written_to(tmp_path):
    path, outside = tmp_path / "config.json", tmp_path / "outside"
    outside.write_text("precious")
    path.symlink_to(outside)
    unused_name(path).symlink_to(outside)
    replace_file(path, b"{}")
    assert path.read_bytes() == b"{}"
    assert not path.is_symlink()
    assert outside.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["config.json", "outside"]


def test_a_failure_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "curve.png"
    path.write_text("old")

    def stop_halfway():
        with replacing(path) as temporary:
            assert temporary.suffix == ".png"
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_halfway()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["curve.png"]
