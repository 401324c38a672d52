"""The same problems from every source, and every way in which a source can be bad."""

import dataclasses
import gzip
import io
import os
import re
import resource
import shutil
import tarfile
import zipfile
from typing import Any
from xml.etree import ElementTree

import cv2
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raise_model.data import grammar, schema
from raise_model.data.annotations import read_annotations
from raise_model.data.bad_file import BadFile
from raise_model.data.columns import Columns
from raise_model.data.ingest import ingest
from raise_model.data.panel_text import cut_panels
from raise_model.data.published import Files, as_problem, read_problem
from raise_model.errors import UserError
from raise_model.store import Store

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


@pytest.fixture
def center(published):
    """RAVEN's Center: problems 0 and 11 (train) and 8 (test)."""
    return published / "raven" / "center_single"


def pack_zip(folder, target, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(target, "w", compression) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder.parent))


def pack_tar(folder, target, kind=""):
    mode: Any = f"w:{kind}"
    with tarfile.open(target, mode) as archive:
        archive.add(folder, folder.name)


def pack_far_apart(folder, target):
    """All XML first, then all npz, backwards."""
    paths = sorted((p for p in folder.rglob("RAVEN_*")), key=lambda p: (p.suffix, p.name))[::-1]
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for path in paths:
            archive.add(path, path.relative_to(folder.parent))


def hub_row(stem, **changes):
    with np.load(f"{stem}.npz") as arrays:
        image, target = arrays["image"], int(arrays["target"])
    pngs = [cv2.imencode(".png", panel)[1].tobytes() for panel in image]
    images = [{"bytes": png, "path": None} for png in pngs]
    return {
        "panels": images[:8],
        "choices": images[8:],
        "target": target,
        "id": int(stem.name.split("_")[1]),
        "metadata": stem.with_suffix(".xml").read_text(),
    } | changes


def write_hub(target, rows, drop=()):
    schema = pa.schema(
        [
            ("panels", pa.list_(IMAGE)),
            ("choices", pa.list_(IMAGE)),
            ("target", pa.int32()),
            ("id", pa.int32()),
            ("metadata", pa.string()),
        ]
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    made = pa.Table.from_pylist(rows, schema=schema).drop_columns(list(drop))
    pq.write_table(made, target, row_group_size=2)


def pack_hub(folder, target):
    for configuration in sorted(folder.iterdir()):
        rows = {}
        for npz in sorted(configuration.glob("*.npz"), reverse=True):
            rows.setdefault(npz.stem.split("_")[2], []).append(hub_row(npz.with_suffix("")))
        for split, own in rows.items():
            name = f"{HUB_SPLITS[split]}-00000-of-00001.parquet"
            write_hub(target / configuration.name / name, own)


SOURCES = {
    "folder": lambda folder, home: folder,
    "zip": lambda folder, home: pack_zip(folder, home / "raven.zip") or home / "raven.zip",
    "stored zip": lambda folder, home: (
        pack_zip(folder, home / "raven.zip", zipfile.ZIP_STORED) or home / "raven.zip"
    ),
    "tar": lambda folder, home: pack_tar(folder, home / "raven.tar") or home / "raven.tar",
    "tar.gz": lambda folder, home: (
        pack_far_apart(folder, home / "raven.tar.gz") or home / "raven.tar.gz"
    ),
    "tgz": lambda folder, home: pack_tar(folder, home / "a.tgz", "gz") or home / "a.tgz",
    "hub": lambda folder, home: pack_hub(folder, home / "hub") or home / "hub",
}


def content(store, report):
    """Table and digest of every split."""
    made = {}
    for manifest in report.manifests:
        tables = [pq.read_table(store.path(f"{manifest.folder}/{n}")) for n in manifest.files]
        made[manifest.configuration, manifest.split] = (pa.concat_tables(tables), manifest.digest)
    return made


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
def test_every_source_of_the_same_problems_gives_equal_tables(published, tmp_path, dataset):
    folder = published / dataset
    expected = None
    for number, (name, pack) in enumerate(SOURCES.items()):
        home = tmp_path / str(number)
        home.mkdir()
        store = Store(str(home / "store"))
        report = ingest(store, [pack(folder, home)])
        assert report.rejected == [], name
        assert {m.dataset for m in report.manifests} == {f"{dataset}_published"}, name
        expected = expected or content(store, report)
        found = content(store, report)
        assert found.keys() == expected.keys()
        for key, (table, digest) in found.items():
            assert digest == expected[key][1], (name, key)
            assert table.equals(expected[key][0], check_metadata=True), (name, key)
    assert expected is not None
    modified = expected["grid_2x2", "train"][0].column("modified")
    assert modified.null_count == (1 if dataset == "raven" else 0)


def test_a_file_of_the_hub_itself_equals_the_published_problem(published, center, tmp_path):
    stores = [Store(str(tmp_path / name)) for name in "ab"]
    hub = published.parent / "hub" / "center_single" / "test-00000-of-00001.parquet"
    from_hub = content(stores[0], ingest(stores[0], [hub]))
    from_files = content(stores[1], ingest(stores[1], [center]))
    assert list(from_hub) == [("center", "test")]
    assert from_hub["center", "test"][1] == from_files["center", "test"][1]
    assert from_hub["center", "test"][0].equals(from_files["center", "test"][0])


@pytest.mark.parametrize("suffix", ["", ".zip", ".tar", ".tar.gz"])
def test_any_fsspec_uri_is_read(center, tmp_path, store, suffix):
    memory = fsspec.filesystem("memory")
    uri = f"memory://test_sources{suffix or '/raven'}"
    try:
        if suffix:
            packed = tmp_path / f"a{suffix}"
            if suffix == ".zip":
                pack_zip(center, packed)
            else:
                pack_tar(center, packed, "gz" if suffix == ".tar.gz" else "")
            memory.pipe_file(uri, packed.read_bytes())
        else:
            memory.put(str(center), f"{uri}/center_single", recursive=True)
        report = ingest(store, [uri])
    finally:
        memory.rm("/", recursive=True)
    expected = ingest(Store(str(tmp_path / "b")), [center])
    assert report.rejected == []
    assert [m.digest for m in report.manifests] == [m.digest for m in expected.manifests]


def test_columns_are_the_rows_and_digests_of_problems(published):
    for folder in sorted(published.glob("*raven/*")):
        configuration = grammar.by_folder(folder.name)
        assert configuration is not None
        columns, problems = Columns(4), []
        for npz in sorted(folder.glob("*.npz")):
            data, xml = npz.read_bytes(), npz.with_suffix(".xml").read_bytes()
            annotations = read_annotations(xml, configuration)
            target = Files(npz=data, xml=xml).read_panels(columns.next_panels)
            problems.append(
                as_problem(annotations, len(problems), target, columns.next_panels.copy())
            )
            columns.append(len(problems) - 1, target, annotations)
        assert columns.digests == [problem.digest() for problem in problems]
        table = columns.table("a/b")
        table.validate(full=True)
        assert table.equals(schema.Chunk.stack(problems).table("a/b"))


def sorted_attributes(xml):
    """As older programs wrote the same file."""
    root = ElementTree.fromstring(xml)
    for element in root.iter():
        attributes = dict(sorted(element.attrib.items()))
        element.attrib.clear()
        element.attrib.update(attributes)
    return ElementTree.tostring(root)


def test_panels_in_every_form_are_what_the_parser_reads(published):
    for path in sorted(published.rglob("*.xml")):
        xml, configuration = path.read_bytes(), grammar.by_folder(path.parent.name)
        assert configuration is not None
        slots = [len(c.slots) for c in grammar.configuration(configuration).components]
        parsed = read_annotations(b"<!-- not the published form -->" + xml, configuration)
        for form in (xml, sorted_attributes(xml)):
            stripped = re.sub(rb' mask="[^"]*"', b"", form)
            assert len(cut_panels(stripped, slots)[1]) == 16
            assert read_annotations(form, configuration) == parsed
        assert cut_panels(b" " + stripped, slots)[1] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</Struct></Panel>", b"</Panel></Struct>"),
        (b"<Panel><Struct", b"<Panel>&bad;<Struct"),
        (b"</Layout></Component>", b"</Component></Layout>"),
        (b' Angle="', b' Angle="9'),
        (b'Component id="0"', b'Component id="1"'),
        (b"<Entity ", b"<Entity <"),
    ],
)
def test_what_is_no_published_form_is_refused_by_the_parser(center, old, new):
    xml = (center / "RAVEN_0_train.xml").read_bytes()
    assert old in xml
    with pytest.raises(BadFile, match="XML"):
        read_annotations(xml.replace(old, new, 1), "center")


# Bad sources: one line, and nothing in the store.


def bad_zip(edit):
    def make(center, home):
        pack_zip(center, home / "a.zip")
        (home / "a.zip").write_bytes(edit((home / "a.zip").read_bytes()))
        return home / "a.zip"

    return make


def bad_tar(suffix, edit):
    def make(center, home):
        path = home / f"a{suffix}"
        pack_tar(center, path, "gz" if suffix == ".tar.gz" else "")
        path.write_bytes(edit(path.read_bytes()))
        return path

    return make


def encrypted(data):
    """Flag 1 of the first entry of the central directory."""
    at = data.index(b"PK\1\2") + 8
    return data[:at] + bytes([data[at] | 1]) + data[at + 1 :]


def other_method(data):
    at = data.index(b"PK\1\2") + 10
    return data[:at] + b"\x0c\0" + data[at + 2 :]


def truncated_hub(center, home):
    write_hub(home / "center_single" / "train-0.parquet", [hub_row(center / "RAVEN_0_train")])
    path = home / "center_single" / "train-0.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    return home


def without_id(center, home):
    path = home / "center_single" / "train-0.parquet"
    write_hub(path, [hub_row(center / "RAVEN_0_train")], drop=["id"])
    return path


def other_parquet(center, home):
    pq.write_table(pa.table({"a": [1]}), home / "a.parquet")
    return home / "a.parquet"


def between_members(data):
    """The archive up to the header of its last member."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return data[: archive.getmembers()[-1].offset]


BAD = {
    "truncated zip": (bad_zip(lambda data: data[:-100]), "is damaged"),
    "empty zip": (bad_zip(lambda data: b""), "is damaged"),
    "encrypted zip": (bad_zip(encrypted), "is encrypted"),
    "other zip": (bad_zip(other_method), "only deflate is read"),
    "truncated tar": (bad_tar(".tar", lambda data: data[:30_000]), "is damaged"),
    "tar cut between members": (bad_tar(".tar", between_members), "it has no end"),
    "no tar": (bad_tar(".tar", lambda data: b"a" * 2000), "is damaged"),
    "empty tar": (bad_tar(".tar", lambda data: b""), "is damaged"),
    "truncated tar.gz": (bad_tar(".tar.gz", lambda data: data[:-9]), "is damaged"),
    "cut tar.gz": (bad_tar(".tar.gz", lambda data: data[:20_000]), "is damaged"),
    "no gz": (bad_tar(".tar.gz", gzip.decompress), "is damaged"),
    "truncated hub": (truncated_hub, "cannot be read .*fetch it again"),
    "hub without id": (without_id, "has no column id"),
    "other parquet": (other_parquet, r"is not <configuration>/<split>"),
    "scheme": (lambda *_: "gopher://host/raven", "gopher://host/raven: Protocol not known"),
    "no object": (lambda *_: "memory://nowhere.zip", "nowhere.zip does not exist"),
    "no archive": (lambda _, home: home / "none.zip", "none.zip does not exist"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_source_is_one_line_and_leaves_nothing(center, tmp_path, store, kind):
    make, message = BAD[kind]
    path = make(center, tmp_path)
    with pytest.raises(UserError, match=message) as error:
        ingest(store, [path])
    assert "\n" not in str(error.value)
    assert not (tmp_path / "store" / "datasets").exists()


def png(image):
    return [{"bytes": cv2.imencode(".png", image)[1].tobytes(), "path": None}] * 8


def damaged_png():
    data = bytearray(cv2.imencode(".png", np.zeros((160, 160), np.uint8))[1].tobytes())
    data[60] ^= 255
    return [{"bytes": bytes(data), "path": None}] * 8


GREY = np.zeros((160, 160), np.uint8)
BAD_ROWS = {
    "wrong size": (
        {"choices": png(np.zeros((80, 160), np.uint8))},
        "image 8 has 160x80 pixels, not 160x160",
    ),
    "color": ({"panels": png(np.zeros((160, 160, 3), np.uint8))}, "image 0 has 8 bits .* type 2"),
    "16 bits": ({"panels": png(GREY.astype(np.uint16))}, "image 0 has 16 bits"),
    "no png": ({"panels": [{"bytes": b"GIF89a", "path": None}] * 8}, "image 0 is not a PNG"),
    "null png": ({"panels": [{"bytes": None, "path": "a.png"}] * 8}, "image 0 is not a PNG"),
    "truncated": (
        {"panels": [{"bytes": png(GREY)[0]["bytes"][:-20], "path": None}] * 8},
        "image 0 is damaged",
    ),
    "flipped": ({"panels": damaged_png()}, "image 0 is damaged"),
    "header only": (
        {"panels": [{"bytes": png(GREY)[0]["bytes"][:20], "path": None}] * 8},
        "image 0 is not a PNG",
    ),
    "too few": ({"panels": png(GREY)[:7]}, "has 15 images"),
    "no images": ({"panels": None}, "has 8 images"),
    "target 9": ({"target": 9}, "target is 9, not 0 to 7"),
    "no target": ({"target": None}, "target is None"),
    "no metadata": ({"metadata": None}, "XML is damaged"),
    "split": ({"id": 8}, "id 8 belongs to test, not train"),
    "no id": ({"id": None}, "id -1 belongs to no problem"),
    "repeated": ({"id": 11}, "index 11 is in .* too"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_damaged_row_is_listed_and_left_out(center, tmp_path, store, kind):
    changes, reason = BAD_ROWS[kind]
    rows = [hub_row(center / "RAVEN_11_train"), hub_row(center / "RAVEN_0_train", **changes)]
    write_hub(tmp_path / "center_single" / "train.parquet", rows)
    report = ingest(store, [tmp_path / "center_single"])
    (bad,) = report.rejected
    assert bad.path.endswith("center_single/train.parquet, row 1")
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(bad.reason)
    assert [m.problems for m in report.manifests] == [1]


def test_a_damaged_member_is_listed_and_left_out(center, tmp_path, store):
    pack_zip(center, tmp_path / "a.zip", zipfile.ZIP_STORED)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.index(b"<Data>")
    data[at : at + 6] = b"<Dada>"
    (tmp_path / "a.zip").write_bytes(bytes(data))
    report = ingest(store, [tmp_path / "a.zip"])
    (bad,) = report.rejected
    assert bad.reason == ".xml is damaged: bad CRC-32"
    assert bad.path.endswith("a.zip/center_single/RAVEN_0_train")
    assert sum(m.problems for m in report.manifests) == 2


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
def test_an_oversized_member_is_never_unpacked(center, tmp_path, store, suffix):
    path = tmp_path / f"a{suffix}"
    bomb = bytes(30 << 20)
    if suffix == ".zip":
        pack_zip(center, path)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("center_single/RAVEN_1_train.npz", bomb)
            archive.writestr("center_single/RAVEN_1_train.xml", "<Data/>")
    else:
        with tarfile.open(path, "w:gz" if suffix == ".tar.gz" else "w") as archive:
            archive.add(center, "center_single")
            for kind in ("npz", "xml"):
                info = tarfile.TarInfo(f"center_single/RAVEN_1_train.{kind}")
                info.size = len(bomb)
                archive.addfile(info, io.BytesIO(bomb))
    report = ingest(store, [path])
    assert [bad.reason for bad in report.rejected] == [
        f".npz has {len(bomb)} bytes, more than any RAVEN file"
    ]
    assert sum(m.problems for m in report.manifests) == 3


def test_a_size_that_the_zip_index_misstates_does_not_fill_the_memory(center, tmp_path, store):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("center_single/RAVEN_1_train.npz", bytes(5 << 20))
        archive.write(center / "RAVEN_0_train.xml", "center_single/RAVEN_1_train.xml")
    data = (tmp_path / "a.zip").read_bytes()
    at = data.index(b"PK\1\2") + 24
    (tmp_path / "a.zip").write_bytes(data[:at] + (1000).to_bytes(4, "little") + data[at + 4 :])
    message = r"RAVEN_1_train: \.npz is damaged: a member has another size than its index says$"
    with pytest.raises(UserError, match=message):
        ingest(store, [tmp_path / "a.zip"])


@pytest.mark.parametrize("prefix", ["/", "../../", "/../tmp/"])
def test_names_that_lead_elsewhere_are_only_names(center, tmp_path, store, prefix):
    before = sorted(path for path in tmp_path.parent.rglob("*"))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for path in sorted(center.iterdir()):
            info = tarfile.TarInfo(f"{prefix}center_single/{path.name}")
            info.size = path.stat().st_size
            archive.addfile(info, io.BytesIO(path.read_bytes()))
        link = tarfile.TarInfo("center_single/RAVEN_1_train.xml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    report = ingest(store, [tmp_path / "a.tar"])
    assert report.rejected == []
    assert sum(m.problems for m in report.manifests) == 3
    made = set(tmp_path.parent.rglob("*")) - set(before)
    assert all(p == tmp_path / "a.tar" or tmp_path / "store" in (p, *p.parents) for p in made)


def test_a_full_disk_is_one_line_and_leaves_nothing(center, tmp_path, store):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*File too large; free space") as error:
            ingest(store, [center])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert [f for f in store.filesystem.find(store.root) if "." in os.path.basename(f)] == []


def test_a_full_scratch_folder_is_one_line(center, tmp_path, store):
    pack_tar(center, tmp_path / "a.tgz", "gz")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(UserError, match="set TMPDIR to a folder") as error:
            ingest(store, [tmp_path / "a.tgz"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)


def test_the_scratch_folder_is_gone_afterwards(center, tmp_path, store, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    pack_tar(center, tmp_path / "a.tgz", "gz")
    ingest(store, [tmp_path / "a.tgz"])
    assert list((tmp_path / "scratch").iterdir()) == []


def test_side_by_side_data_sets_of_an_archive_stay_apart(published, tmp_path, store):
    pack_zip(published, tmp_path / "both.zip")
    report = ingest(store, [tmp_path / "both.zip"])
    assert {m.dataset for m in report.manifests} == {"raven_published", "iraven_published"}
    assert report.rejected == []


def test_unpaired_members_are_listed(center, tmp_path, store):
    files = tmp_path / "center_single"
    shutil.copytree(center, files)
    (files / "RAVEN_0_train.xml").unlink()
    pack_tar(files, tmp_path / "a.tgz", "gz")
    (bad,) = ingest(store, [tmp_path / "a.tgz"]).rejected
    assert bad.path.endswith("a.tgz/center_single/RAVEN_0_train.npz")
    assert bad.reason == "its .xml is missing"


def test_read_problem_is_the_canonical_form(center):
    npz, xml = ((center / f"RAVEN_0_train.{kind}").read_bytes() for kind in ("npz", "xml"))
    problem = read_problem(npz, xml, "center", 0)
    assert dataclasses.replace(problem, index=1).digest() != problem.digest()
