"""A file is there whole, as it was, or not at all."""

import errno
import os

import pytest

from raise_model import atomic_write


def test_create_and_replace_make_folders_and_leave_no_other_file(tmp_path):
    path = tmp_path / "a" / "b.txt"
    atomic_write.create(path, b"one")
    with pytest.raises(FileExistsError):
        atomic_write.create(path, b"two")
    assert path.read_bytes() == b"one"
    atomic_write.replace(path, b"three", durable=False)
    assert path.read_bytes() == b"three"
    assert os.listdir(path.parent) == ["b.txt"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch, step):
    path = tmp_path / "a"
    atomic_write.replace(path, b"old")

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic_write.replace(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
