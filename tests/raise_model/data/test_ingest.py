"""Published files to Parquet, and every way in which files can be bad."""

import io
import os
import shutil
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from raise_model.data.annotations import read_annotations
from raise_model.data.bad_file import BadFile
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.ingest import ingest
from raise_model.data.loader import load
from raise_model.data.published import read_problem
from raise_model.data.schema import find_manifest
from raise_model.errors import UserError
from raise_model.store import Store

BILLION_LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]><Data>&c;</Data>'
)


@pytest.fixture
def files(published, tmp_path):
    """A copy of RAVEN's Center: problems 0 and 11 (train) and 8 (test)."""
    folder = tmp_path / "files" / "center_single"
    shutil.copytree(published / "raven" / "center_single", folder)
    return folder


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


def rows(store, manifest):
    (name,) = manifest.files
    return pq.ParquetFile(store.path(f"{manifest.folder}/{name}")).read().to_pylist()


def reasons(report):
    return {os.path.basename(bad.path): bad.reason for bad in report.rejected}


def rewrite(npz, **changes):
    """Replace arrays of an npz; None removes one."""
    with np.load(npz) as file:
        arrays = dict(file) | changes
    np.savez_compressed(npz, **{k: v for k, v in arrays.items() if v is not None})


def test_both_data_sets_and_all_configurations_are_told_apart(published, store):
    report = ingest(store, [published], workers=1)
    assert report.rejected == []
    made = {(m.dataset, m.configuration, m.split): m.problems for m in report.manifests}
    names = [name for name, c in CONFIGURATIONS.items() if not c.uniform]
    for dataset in ("raven_published", "iraven_published"):
        for name in names:
            train = 2 if (dataset, name) == ("raven_published", "center") else 1
            assert made[dataset, name, "train"] == train
        assert made[dataset, "center", "test"] == 1
    assert len(made) == 2 * (len(names) + 1)


def test_row_is_what_the_files_say(published, store):
    report = ingest(store, [published / "iraven" / "distribute_four"])
    (row,) = rows(store, report.manifests[0])
    with np.load(published / "iraven" / "distribute_four" / "RAVEN_3_train.npz") as file:
        assert row["panels"] == file["image"].tobytes()
        assert row["target"] == file["target"]
    assert row["index"] == 3
    assert row["problem_id"] == "iraven_published/grid_2x2/3"
    assert {rule["attribute"] for rule in row["rules"]} == {"position", "type", "size", "color"}
    assert all(rule["value"] is None for rule in row["rules"])
    assert row["modified"][row["target"]] == []
    for layouts, entities in zip(row["layouts"], row["entities"], strict=True):
        assert layouts[0]["position"] == sorted(e["slot"] for e in entities)
        assert layouts[0]["number"] == len(entities) - 1


def test_structure_may_be_bytes_or_unicode(published, store):
    kinds = set()
    for file in (published / "raven" / "center_single").glob("*.npz"):
        with np.load(file) as arrays:
            kinds.add(arrays["structure"].dtype.kind)
    assert kinds == {"S", "U"}
    assert ingest(store, [published / "raven" / "center_single"]).rejected == []


def test_ingested_files_load(files, store, tmp_path):
    ingest(store, [files])
    problems = load(
        store, "raven_published", "center", "train", image_size=64, resize="bilinear",
        cache=tmp_path / "cache",
    )  # fmt: skip
    assert problems.panels.shape == (2, 16, 64, 64)
    assert problems.rule_labels("official").tolist()[0] == [0, 0, 3]


def test_workers_names_and_archives_do_not_change_the_content(published, tmp_path):
    paths = [published / "raven" / "distribute_nine", published / "raven" / "center_single"]
    archives = [shutil.make_archive(str(tmp_path / p.name), "zip", p.parent, p.name) for p in paths]
    one = ingest(Store(str(tmp_path / "a")), paths, workers=1)
    two = ingest(Store(str(tmp_path / "b")), archives[::-1], workers=2, dataset="mine")
    assert {m.digest for m in one.manifests} == {m.digest for m in two.manifests}
    assert {m.dataset for m in two.manifests} == {"mine"}


def test_ingesting_again_changes_nothing(files, store):
    first = ingest(store, [files])
    assert ingest(store, [files]).manifests == first.manifests
    assert len(store.list(first.manifests[0].folder)) == 2


def test_a_path_given_twice_counts_once(files, store):
    report = ingest(store, [files, files.parent, files / ".." / "center_single"])
    assert sum(m.problems for m in report.manifests) == 3
    assert report.rejected == []


def test_the_same_index_twice_is_rejected(files, store, tmp_path):
    shutil.copytree(files, tmp_path / "more" / "center_single")
    report = ingest(store, [files, tmp_path / "more"])
    assert sum(m.problems for m in report.manifests) == 3
    assert len(report.rejected) == 3
    assert all("is in" in bad.reason and "too" in bad.reason for bad in report.rejected)


def damage_truncate(files):
    file = files / "RAVEN_0_train.npz"
    file.write_bytes(file.read_bytes()[:5000])


def damage_flip(files):
    file = files / "RAVEN_0_train.npz"
    data = bytearray(file.read_bytes())
    data[300:400] = bytes(100)
    file.write_bytes(bytes(data))


def damage_xml(edit):
    def damage(files):
        file = files / "RAVEN_0_train.xml"
        file.write_bytes(edit(file.read_bytes()))

    return damage


def damage_npz(**changes):
    return lambda files: rewrite(files / "RAVEN_0_train.npz", **changes)


def damage_bomb(files):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (50_000_000,)}
    )
    with zipfile.ZipFile(files / "RAVEN_0_train.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("image.npy", header.getvalue() + bytes(50_000_000))


BAD = {
    "truncated npz": (damage_truncate, "npz is damaged"),
    "flipped bytes": (damage_flip, "npz is damaged"),
    "empty npz": (lambda f: (f / "RAVEN_0_train.npz").write_bytes(b""), "npz is damaged"),
    "pickle": (damage_npz(image=np.array([{}, 1], dtype=object)), "npz is damaged: Object arrays"),
    "bomb": (damage_bomb, "more than any RAVEN array"),
    "no image": (damage_npz(image=None), "npz lacks an array"),
    "wrong size": (
        damage_npz(image=np.zeros((16, 80, 80), np.uint8)),
        r"not uint8 \(16, 160, 160\)",
    ),
    "wrong type": (damage_npz(image=np.zeros((16, 160, 160), np.int8)), "image is int8"),
    "target 9": (damage_npz(target=np.array(9)), "target is 9, not 0 to 7"),
    "target text": (damage_npz(target=np.array("a")), "target is <U1"),
    "billion laughs": (damage_xml(lambda _: BILLION_LAUGHS), "document type"),
    "truncated xml": (damage_xml(lambda x: x[:3000]), "XML is damaged"),
    "empty xml": (damage_xml(lambda _: b""), "XML is damaged"),
    "other xml": (damage_xml(lambda _: b"<a/>"), "XML has 0 panels"),
    "unknown rule": (
        damage_xml(
            lambda x: x.replace(b'name="Constant" attr="Type"', b'name="Often" attr="Type"')
        ),
        "unknown rule 'Often' on 'Type'",
    ),
    "level": (
        damage_xml(lambda x: x.replace(b'Color="4"', b'Color="40"')),
        "Color='40', not 0 to 9",
    ),
    "no number": (damage_xml(lambda x: x.replace(b'Type="5"', b'Type=""')), "Type='', not 1 to 5"),
    "other box": (damage_xml(lambda x: x.replace(b'bbox="[0.5', b'bbox="[0.4')), "bbox is not in"),
    "deep box": (
        damage_xml(
            lambda x: x.replace(b'bbox="[0.5, 0.5, 1, 1]"', b'bbox="' + b"[" * 99999 + b'"')
        ),
        "bbox is not in",
    ),
    "no rules": (damage_xml(lambda x: x.replace(b"<Rule ", b"<Law ")), "XML has no rules"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_damaged_problem_is_listed_and_left_out(files, store, kind):
    damage, reason = BAD[kind]
    damage(files)
    report = ingest(store, [files])
    assert [os.path.basename(bad.path) for bad in report.rejected] == ["RAVEN_0_train"]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(report.rejected[0].reason)
    assert "\n" not in report.rejected[0].reason
    assert {m.split: m.problems for m in report.manifests} == {"train": 1, "test": 1}


def test_unpaired_and_wrongly_named_files_are_listed(files, store):
    for suffix in ("npz", "xml"):
        shutil.copy(files / f"RAVEN_0_train.{suffix}", files / f"RAVEN_1_train.{suffix}")
    (files / "RAVEN_0_train.xml").unlink()
    (files / "RAVEN_11_train.npz").unlink()
    (files / "RAVEN_8_test.npz").rename(files / "RAVEN_8_train.npz")
    (files / "RAVEN_8_test.xml").rename(files / "RAVEN_8_train.xml")
    (files / "readme.txt").write_text("no matter")
    (files / "copy of RAVEN_0_train.npz").write_bytes(b"")
    report = ingest(store, [files])
    assert reasons(report) == {
        "RAVEN_0_train.npz": "its .xml is missing",
        "RAVEN_11_train.xml": "its .npz is missing",
        "RAVEN_8_train": "index 8 belongs to test, not train",
        "copy of RAVEN_0_train.npz": "name is not RAVEN_<index>_<train|val|test>.npz or .xml",
    }
    assert [(made.split, made.problems) for made in report.manifests] == [("train", 1)]


def test_strict_leaves_nothing(files, store):
    damage_truncate(files)
    with pytest.raises(UserError, match=r"1 files rejected.*RAVEN_0_train: npz is damaged"):
        ingest(store, [files], strict=True)
    for split in ("train", "test"):
        assert find_manifest(store, "raven_published", "center", split) is None
    assert [f for f in store.filesystem.find(store.root) if f.endswith(".parquet")] == []


def test_files_that_changed_are_refused_under_the_same_name(files, store):
    before = ingest(store, [files]).manifests
    rewrite(files / "RAVEN_8_test.npz", target=np.array(7))
    with pytest.raises(UserError, match="holds other problems"):
        ingest(store, [files])
    for manifest in before:
        assert find_manifest(store, manifest.dataset, "center", manifest.split) == manifest
        assert store.list(manifest.folder) == sorted(["_manifest.json", *manifest.files])


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "does not exist"), ("file", "is not a folder"), ("empty", "holds no folder")],
)
def test_paths_without_problems_are_one_line(tmp_path, store, path, message):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message) as error:
        ingest(store, [tmp_path / path])
    assert "\n" not in str(error.value)


def test_an_empty_configuration_folder_is_one_line(tmp_path, store):
    (tmp_path / "center_single").mkdir()
    with pytest.raises(UserError, match=r"no RAVEN_<index>_<split>"):
        ingest(store, [tmp_path])


def test_a_store_without_permission_is_one_line(files, tmp_path):
    (tmp_path / "blocked").write_text("a file where the folder of data sets would be")
    with pytest.raises(UserError, match=r"cannot write .*blocked"):
        ingest(Store(str(tmp_path / "blocked")), [files])


def test_entities_are_never_expanded():
    with pytest.raises(BadFile, match="lolz"):
        read_annotations(BILLION_LAUGHS, "center")


def test_reading_needs_the_right_configuration(published):
    folder = published / "raven" / "distribute_four"
    npz, xml = ((folder / f"RAVEN_3_train.{kind}").read_bytes() for kind in ("npz", "xml"))
    with pytest.raises(BadFile, match="not a list of 1 boxes"):
        read_problem(npz, xml, "center", 3)
    assert read_problem(npz, xml, "grid_2x2", 3).index == 3


def test_nothing_read_is_an_error(tmp_path, published):
    folder = tmp_path / "files" / "center_single"
    folder.mkdir(parents=True)
    for suffix in ("npz", "xml"):
        (folder / f"RAVEN_0_train.{suffix}").write_bytes(b"nonsense")
    store = Store(str(tmp_path / "store"))
    with pytest.raises(UserError, match="nothing could be read, 1 files or problems rejected"):
        ingest(store, [tmp_path / "files"])
    assert not list((tmp_path / "store").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my data/set", "is no name of a data set"),
        ("../x", "is no name of a data set"),
        ("", "is no name of a data set"),
        ("raven", "is the name of generated data; choose another, e.g. my_raven"),
        ("iraven_held_out", "is the name of generated data"),
    ],
)
def test_names_that_cannot_be_or_are_taken_are_refused(tmp_path, published, name, message):
    with pytest.raises(UserError, match=message):
        ingest(Store(str(tmp_path)), [published / "raven"], dataset=name)
    assert not list(tmp_path.iterdir())
