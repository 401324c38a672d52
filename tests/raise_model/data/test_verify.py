"""Data are checked against their annotations; each fault put in by hand is found."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from raise_model.data import schema
from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.problem_checks import REDRAWN_PIXELS, examine
from raise_model.data.verify import verify
from raise_model.errors import UserError
from raise_model.store import Store

FOLDER = schema.folder("raven", "grid_2x2", "test")


@pytest.fixture
def copy(generated, tmp_path):
    """A copy of a generated store that may be damaged; its test split has 20 problems."""
    shutil.copytree(generated.root, tmp_path / "store")
    return Store(str(tmp_path / "store"))


def only(reports):
    (report,) = reports
    return report


def violations(report, exact=False):
    return report.totals.violations(exact=exact)


@pytest.mark.parametrize("folder", ["published", "published_more"])
def test_published_problems_are_drawn_to_the_pixel_and_obey(published, folder):
    reports = verify(str(published.parent / folder))
    names = {name for name, made in CONFIGURATIONS.items() if not made.uniform}
    if folder == "published_more":
        names -= {"center"}
    assert {(r.dataset, r.configuration) for r in reports} == {
        (dataset, name) for dataset in ("raven", "iraven") for name in names
    }
    for report in reports:
        assert report.totals.problems >= 1
        assert report.totals.panels == 16 * report.totals.problems
        assert report.totals.differing_pixels == 0
        assert violations(report, exact=True) == 0


def test_a_store_and_its_parts_are_sound(generated):
    for path, problems in (("", 100), ("/" + FOLDER, 20)):
        report = only(verify(generated.root + path))
        assert report.totals.problems == problems
        assert violations(report, exact=True) == 0
        assert report.examples == []


def test_workers_find_the_same(generated):
    seen = []
    two = verify(generated.root, workers=2, progress=lambda done, total: seen.append((done, total)))
    assert two == verify(generated.root)
    assert seen[-1] == (100, 100)


def rewrite(store, change):
    """Change the first problem of the test split, without a word to the manifest."""
    manifest = schema.find_manifest(store, "raven", "grid_2x2", "test")
    (name,) = manifest.files
    path = store.path(f"{FOLDER}/{name}")
    problems = schema.problems_of(pq.read_table(path).combine_chunks().to_batches()[0])
    problems[0] = change(problems[0])
    pq.write_table(schema.Chunk.stack(problems).table("raven/grid_2x2"), path)


def changed_pixels(problem, pixels):
    panels = problem.panels.copy()
    for panel, y, x in pixels:
        panels[panel, y, x] ^= 1
    return replace(problem, panels=panels)


def changed_level(problem):
    entities = [[dict(entity) for entity in panel] for panel in problem.entities]
    size = entities[2][0]["size"]
    entities[2][0]["size"] = size - 1 if size else 1
    return replace(problem, entities=entities)


def renamed_rule(problem):
    rules = [dict(rule) for rule in problem.rules]
    rules[1]["rule"] = "arithmetic"
    rules[1]["value"] = 1
    return replace(problem, rules=rules)


FAULTS = {
    "a pixel": (
        lambda p: changed_pixels(p, [(5, 0, 0)]),
        {"differing_panels": 1, "differing_pixels": 1},
        "raven/grid_2x2/8 (test): panel 5: 1 pixels differ, some away from any edge",
    ),
    "a target": (
        lambda p: replace(p, target=(p.target + 1) % 8),
        {"wrong_answers": 1},
        "raven/grid_2x2/8 (test): component 0,",
    ),
    "a level": (changed_level, {"differing_panels": 1}, "raven/grid_2x2/8 (test): panel 2: "),
    "a rule": (
        renamed_rule,
        {"wrong_answers": 1},
        "raven/grid_2x2/8 (test): component 0, type, arithmetic: row ",
    ),
    "a rule's name": (
        lambda p: replace(p, rules=[{**p.rules[0], "rule": "law"}, *p.rules[1:]]),
        {"rule_violations": 1, "wrong_answers": 1},
        "law: no such rule",
    ),
    "a slot": (
        lambda p: replace(p, entities=[[{**p.entities[0][0], "slot": 9}], *p.entities[1:]]),
        {"problems": 20},
        "panel 0, component 0: a slot is not 0 to 3",
    ),
    "a level out of range": (
        lambda p: replace(p, entities=[[{**e, "type": 6} for e in p.entities[0]], *p.entities[1:]]),
        {"problems": 20},
        "panel 0: type is 6",
    ),
    "a number": (
        lambda p: replace(p, layouts=[[{**p.layouts[0][0], "number": 7}], *p.layouts[1:]]),
        {"bad_annotations": 1},
        "panel 0, component 0: number is 7 but",
    ),
    "a uniformity": (
        lambda p: replace(
            p,
            layouts=[
                *p.layouts[:15],
                [{**p.layouts[15][0], "uniformity": (p.layouts[0][0]["uniformity"] + 1) % 4}],
            ],
        ),
        {"bad_annotations": 1},
        "panel 15, component 0: uniformity is not that of panel 0",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(copy, fault):
    change, expected, text = FAULTS[fault]
    rewrite(copy, change)
    report = only(verify(f"{copy.root}/{FOLDER}"))
    assert {name: getattr(report.totals, name) for name in expected} == expected
    assert any(text in example for example in report.examples), report.examples
    # Beside the fault itself, the digest is another one.
    assert report.totals.unreadable == 1
    assert "digest is " in report.examples[-1]
    assert violations(report) >= 2


def test_a_wrong_digest_is_found(copy):
    path = f"{FOLDER}/_manifest.json"
    manifest = copy.read_json(path)
    copy.write_json(path, manifest | {"digest": "0" * 64})
    report = only(verify(copy.root))
    assert violations(report) == report.totals.unreadable == 1
    assert "digest is 000000000000, but the problems have" in report.examples[0]


def test_counts_of_the_manifest_are_checked(copy):
    path = f"{FOLDER}/_manifest.json"
    manifest = copy.read_json(path)
    (name,) = manifest["files"]
    copy.write_json(path, manifest | {"files": {name: 19}})
    examples = only(verify(copy.root)).examples
    assert any("says 20 problems, but lists others" in text for text in examples)
    assert any("has 20 problems, not 19" in text for text in examples)


def test_unreadable_files_are_one_violation_each(copy):
    (name,) = copy.read_json(f"{FOLDER}/_manifest.json")["files"]
    copy.write(f"{FOLDER}/{name}", b"no Parquet")
    copy.write(f"{schema.folder('raven', 'grid_2x2', 'val')}/_manifest.json", b"{")
    reports = {report.dataset: report for report in verify(copy.root)}
    assert reports["raven"].totals.problems == 60
    assert any(f"{name}: cannot be read" in text for text in reports["raven"].examples)
    assert "no manifest" in reports["unknown"].examples[0]
    for report in reports.values():
        assert all("\n" not in text for text in report.examples)


def test_damaged_published_files_are_named(published, tmp_path):
    folder = tmp_path / "files" / "center_single"
    shutil.copytree(published / "raven" / "center_single", folder)
    (folder / "RAVEN_0_train.npz").write_bytes(b"no npz")
    (folder / "RAVEN_8_test.xml").unlink()
    reports = {report.dataset: report for report in verify(str(tmp_path))}
    assert reports["files"].totals.problems == 1
    texts = [text for r in reports.values() for text in r.examples]
    assert any("RAVEN_0_train: npz is damaged" in text for text in texts)
    assert any("RAVEN_8_test.npz: its .xml is missing" in text for text in texts)
    assert sum(violations(report) for report in verify(str(tmp_path))) == 2


def test_edges_of_another_library_are_noted_and_fail_only_if_exact(copy):
    problem = make_problem("raven", "grid_2x2", 1234, 8)
    y, x = np.argwhere(problem.panels[0] == 0)[0]
    rewrite(copy, lambda p: changed_pixels(p, [(0, y, x)]))
    report = only(verify(f"{copy.root}/{FOLDER}"))
    assert report.totals.redrawn_panels == report.totals.differing_panels == 1
    assert report.notes == ["raven/grid_2x2/8 (test): panel 0: 1 pixels differ, all at edges"]
    assert violations(report, exact=True) == violations(report) + 1


def test_one_percent_is_the_limit():
    problem = make_problem("raven", "grid_3x3", 5, 0)
    edges = np.argwhere(problem.panels[0] == 0)
    for number in (REDRAWN_PIXELS, REDRAWN_PIXELS + 1):
        assert len(edges) > number
        found = examine(changed_pixels(problem, [(0, y, x) for y, x in edges[:number]]), "grid_3x3")
        wrong = [text for text in found.wrong_panels if "more than 1 %" in text]
        assert len(wrong) == (number > REDRAWN_PIXELS)


@pytest.mark.parametrize("attribute", ["type", "size", "color", "angle"])
def test_levels_off_by_one_are_no_matter_of_drawing(attribute):
    """Also where shapes are so small that few pixels differ."""
    seen = 0
    for index in range(12):
        problem = make_problem("iraven", "out_in_grid", 5, index)
        entities = [[dict(entity) for entity in panel] for panel in problem.entities]
        entity = entities[1][-1]
        entity[attribute] += -1 if entity[attribute] > 2 else 1
        found = examine(replace(problem, entities=entities), "out_in_grid")
        assert found.redrawn_panels == []
        seen += len(found.wrong_panels)
    # Angles of circles, and the two sizes of squares that look alike, cannot be seen.
    assert seen >= 8


def test_two_right_candidates_are_ambiguous():
    problem = make_problem("iraven", "center", 5, 0)
    other = (problem.target + 1) % 8
    entities, layouts = list(problem.entities), list(problem.layouts)
    panels = problem.panels.copy()
    entities[8 + other], layouts[8 + other] = (
        entities[8 + problem.target],
        layouts[8 + problem.target],
    )
    panels[8 + other] = panels[8 + problem.target]
    found = examine(replace(problem, panels=panels, entities=entities, layouts=layouts), "center")
    both = ", ".join(map(str, sorted([problem.target, other])))
    assert found.ambiguous_answer == [f"candidates {both} all obey"]
    assert found.wrong_answer == found.rules == []


def test_nothing_to_check_is_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError) as error:
            verify(str(path))
        assert "\n" not in str(error.value)


def test_reports_are_json(generated):
    json.dumps([asdict(report) for report in verify(f"{generated.root}/{FOLDER}")])
