"""The Parquet form: round trip, digest, and what an interrupted writer leaves."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raise_model.data import generate as generate_module
from raise_model.data import schema
from raise_model.data.generate import generate, make_problem
from raise_model.data.loader import load
from raise_model.data.schema import SCHEMA, Manifest, create_manifest, find_manifest, open_manifest
from raise_model.errors import UserError
from raise_model.store import Store

OPTIONS = {"dataset": "raven", "configuration": "center", "problems": 30}


def parquet_files(store):
    return [f for f in store.filesystem.find(store.root) if f.endswith(".parquet")]


def test_rows_hold_every_field_of_a_problem(generated):
    manifest = open_manifest(generated, "raven", "grid_2x2", "val")
    (name,) = manifest.files
    rows = pq.ParquetFile(generated.path(f"{manifest.folder}/{name}")).read().to_pylist()
    assert [row["index"] for row in rows[:4]] == [6, 7, 16, 17]
    for row in rows:
        problem = make_problem("raven", "grid_2x2", 1234, row["index"])
        assert row["problem_id"] == f"raven/grid_2x2/{row['index']}"
        panels = np.frombuffer(row["panels"], np.uint8).reshape(16, 160, 160)
        assert np.array_equal(panels, problem.panels)
        for field in ("target", "rules", "layouts", "entities", "modified"):
            assert row[field] == getattr(problem, field), field


def test_file_is_as_documented(generated):
    manifest = open_manifest(generated, "raven", "grid_2x2", "train")
    (name,) = manifest.files
    file = pq.ParquetFile(generated.path(f"{manifest.folder}/{name}"))
    assert file.schema_arrow.equals(SCHEMA)
    panels = file.schema_arrow.field("panels")
    assert panels.type == pa.binary(16 * 160 * 160)
    assert json.loads(panels.metadata[b"shape"]) == [16, 160, 160]
    assert panels.metadata[b"dtype"] == b"uint8"
    column = file.metadata.row_group(0).column(2)
    assert column.compression == "ZSTD"
    assert "RLE_DICTIONARY" not in column.encodings
    assert column.physical_type == "FIXED_LEN_BYTE_ARRAY"


def test_row_groups_have_256_problems(tmp_path):
    store = Store(str(tmp_path))
    manifests = generate(store, **OPTIONS | {"problems": 440}, splits=("train",))
    (name,) = manifests["train"].files
    meta = pq.ParquetFile(store.path(f"{manifests['train'].folder}/{name}")).metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [256, 8]


def test_manifest_says_what_is_there(generated):
    manifest = open_manifest(generated, "raven", "grid_2x2", "test")
    assert manifest.problems == sum(manifest.files.values()) == 20
    assert manifest.recipe["seed"] == 1234
    assert manifest.version
    problems = [make_problem("raven", "grid_2x2", 1234, i) for i in range(100) if i % 10 > 7]
    assert manifest.digest == schema.combine_digests(p.digest() for p in problems)


@pytest.mark.parametrize("field", ["index", "target", "panels", "rules", "entities", "layouts"])
def test_digest_covers_every_field(field):
    problem = make_problem("iraven", "grid_2x2", 1, 0)
    changed = {
        "index": 1,
        "target": (problem.target + 1) % 8,
        "panels": np.where(np.arange(16)[:, None, None] == 3, 255 - problem.panels, problem.panels),
        "rules": [*problem.rules[:-1], dict(problem.rules[-1]) | {"value": 9}],
        "entities": [*problem.entities[1:], problem.entities[0]],
        "layouts": problem.layouts[:-1],
        "modified": None,
    }[field]
    assert dataclasses.replace(problem, **{field: changed}).digest() != problem.digest()


def test_digest_covers_what_was_modified_and_the_order_of_problems():
    problem = make_problem("iraven", "center", 1, 0)
    other = make_problem("iraven", "center", 1, 1).digest()
    own = problem.digest()
    assert dataclasses.replace(problem, modified=None).digest() != own
    assert schema.combine_digests([own, other]) != schema.combine_digests([other, own])


def test_missing_data_say_how_to_make_them(tmp_path):
    with pytest.raises(UserError, match=r"no data set raven/center/train under .*generate"):
        open_manifest(Store(str(tmp_path)), "raven", "center", "train")


def test_an_exception_leaves_no_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    make = generate_module.make_problem

    def failing(dataset, name, seed, index, out=None):
        if index == 17:
            raise RuntimeError("in the middle")
        return make(dataset, name, seed, index)

    monkeypatch.setattr(generate_module, "make_problem", failing)
    with pytest.raises(RuntimeError, match="in the middle"):
        generate(store, **OPTIONS)
    assert parquet_files(store) == []
    assert find_manifest(store, "raven", "center", "train") is None


def test_a_full_disk_is_one_line_and_leaves_no_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left on device") as error:
        generate(store, **OPTIONS)
    assert "\n" not in str(error.value)
    assert parquet_files(store) == []


def test_a_disk_that_is_full_at_the_end_leaves_no_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "create_json", full)
    with pytest.raises(UserError, match=r"cannot write .*_manifest.json: No space left on device"):
        generate(store, **OPTIONS)
    assert parquet_files(store) == []


def test_a_killed_writer_leaves_nothing_readable_and_is_tidied_up(tmp_path):
    script = f"""
import os, signal
from raise_model.data import schema
from raise_model.data.generate import generate
from raise_model.store import Store
schema.create_manifest = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
generate(Store({str(tmp_path)!r}), dataset="raven", configuration="center", problems=30)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(schema.__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", script], env=environment)
    assert ended.returncode == -signal.SIGKILL
    store = Store(str(tmp_path))
    left = parquet_files(store)
    assert len(left) == 3
    with pytest.raises(UserError, match="no data set"):
        load(store, "raven", "center", "train", image_size=32, resize="area", cache=tmp_path / "c")
    manifests = generate(store, **OPTIONS)
    assert not set(left) & set(parquet_files(store))
    assert sum(m.problems for m in manifests.values()) == 30


def test_two_writers_at_once_give_one_whole_data_set(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    both_wrote = threading.Barrier(2)
    create = schema.create_manifest

    def together(*arguments):
        if arguments[1].split == "train":
            both_wrote.wait(timeout=60)
        return create(*arguments)

    monkeypatch.setattr(schema, "create_manifest", together)
    made, failed = [], []

    def write():
        try:
            made.append(generate(store, **OPTIONS))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert made[0] == made[1]
    listed = {store.path(f"{m.folder}/{name}") for m in made[0].values() for name in m.files}
    assert set(parquet_files(store)) == listed


def test_other_content_under_the_same_name_is_refused(tmp_path):
    store = Store(str(tmp_path))
    made = generate(store, **OPTIONS)["val"]
    other = Manifest(
        dataset="raven", configuration="center", split="val", problems=1, digest="f" * 64,
        files={"part-other.parquet": 1}, recipe={}, version="0",
    )  # fmt: skip
    store.create(f"{other.folder}/part-other.parquet", b"")
    with pytest.raises(UserError, match="holds other problems"):
        create_manifest(store, other)
    assert open_manifest(store, "raven", "center", "val") == made
    assert store.list(made.folder) == sorted(["_manifest.json", *made.files])
