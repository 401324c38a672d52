"""Damaged data sets are said to be so wherever they are read; killed work leaves no processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from raise_model.data import schema
from raise_model.data.audit import context_digests
from raise_model.data.generate import generate
from raise_model.data.loader import load
from raise_model.data.reader import read_problem
from raise_model.errors import UserError
from raise_model.store import Store

OPTIONS = {"dataset": "raven", "configuration": "center", "problems": 40}
ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "store"))
    generate(store, **OPTIONS)
    return store


def part(store):
    manifest = schema.find_manifest(store, "raven", "center", "train")
    (name,) = manifest.files
    return manifest, Path(store.path(f"{manifest.folder}/{name}"))


def test_flipped_bits_are_never_read_as_data(store, tmp_path):
    manifest, path = part(store)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 50] = bytes(50)
    path.write_bytes(data)
    where = {"image_size": 20, "resize": "area", "cache": tmp_path / "cache"}
    with pytest.raises(UserError, match=r"cannot be read .*delete its folder"):
        load(store, "raven", "center", "train", **where)
    with pytest.raises(UserError, match="cannot be read"):
        context_digests(store, manifest)
    with pytest.raises(UserError, match="cannot be read"):
        read_problem(store, "raven/center/25")
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_generate_does_not_call_a_damaged_split_complete(store, damage):
    _, path = part(store)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(UserError, match=r"cannot be read .*delete its folder and make it again"):
        generate(store, **OPTIONS)


def test_a_damaged_manifest_is_one_line(store):
    _, path = part(store)
    (path.parent / "_manifest.json").write_text('{"a":')
    for read in (
        lambda: generate(store, **OPTIONS),
        lambda: read_problem(store, "raven/center/1"),
    ):
        with pytest.raises(UserError, match=r"_manifest.json is damaged .*delete that folder"):
            read()


SCRIPT = """
from raise_model.data.generate import generate
from raise_model.store import Store
import sys
if __name__ == "__main__":
    generate(
        Store(sys.argv[1]), dataset="raven", configuration="grid_3x3", problems=20_000, workers=2,
        progress=lambda done, total: print(done, flush=True),
    )
"""


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_was_killed(tmp_path, kill):
    script = tmp_path / "make.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "store")], stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3  # the server that forks, and two workers
    process.send_signal(kill)
    with process.stdout:
        process.stdout.read()  # ends when nobody holds it any more
    process.wait(10)
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(child.pid) for child in children):
        assert time.monotonic() < deadline, [child for child in children if child.is_running()]
        time.sleep(0.1)
