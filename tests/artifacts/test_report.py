"""The four forms of a report against the store's files, read by a literal loop."""

import errno
import io
import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from artifacts.report import build_report, write_report
from artifacts.report_html import page
from raise_model.errors import UserError
from raise_model.presets import as_published, shortened, trial_spec
from raise_model.specs import EvaluationSpec
from raise_model.store import Store


def training(seed=0, *, model="raise", configuration="center", ratio=None, preset="demo"):
    return trial_spec(
        model=model, preset=preset, dataset="raven", configuration=configuration,
        train_digest="a", validation_digest="b", seed=seed, label_ratio=ratio,
    )  # fmt: skip


def evaluation(dataset="raven", *, protocol="bottom_right", split="test", **options):
    return EvaluationSpec(
        protocol=protocol, options=options or {"space": "latent"}, dataset=dataset,
        configuration="center", split=split, digest="c" * 64, rounds=2, seed=0, revision=1,
    )  # fmt: skip


PROVENANCE = {"device": "Test CPU", "threads": 1, "commit": "abcdef0123456789", "torch": "2.0"}
ARBITRARY = {"space": "latent", "masks": "batch", "duplicates": "keep"}


def put(store, spec, evaluation, accuracy, **more):
    """A finished training of 2,000 seconds with one evaluation."""
    folder = store.trial(spec)
    if not folder.is_done:
        folder.put_spec(spec)
        buffer = io.BytesIO()
        rows = [{"step": 1000.0, "validation_accuracy": 0.5}]
        pd.DataFrame(rows).to_parquet(buffer)
        store.write(folder.file("curve.parquet"), buffer.getvalue())
        done = {"step": 1000, "best_step": 1000, "validation_accuracy": 0.5, "seconds": 2000.0}
        store.create_json(folder.file("done.json"), done)
    result = {"problems": 2000, "accuracy": accuracy, "correct": [], "rule_accuracy": 0.75}
    folder.evaluation(evaluation).create_result(evaluation, result | more)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Three seeds of RAISE on Center, one of raise_plus, and results that are no accuracies."""
    store = Store(str(tmp_path_factory.mktemp("filled")))
    for seed in range(3):
        spec = training(seed)
        for place, dataset in enumerate(("raven", "iraven")):
            rounds = [0.8 + seed / 50 + place / 20 + error for error in (-0.001, 0.001)]
            put(store, spec, evaluation(dataset), rounds, provenance=PROVENANCE)
        put(store, spec, evaluation("iraven", split="val"), [0.111])
        settings = [
            {"targets": t, "distractors": n, "accuracy": [0.9 - t / 20 - n / 100 - seed / 70] * 2,
             "problems": 2000}
            for t in (1, 2) for n in (1, 3, 7, 15)
        ]  # fmt: skip
        put(
            store, spec, evaluation("raven", protocol="arbitrary_position", **ARBITRARY), [],
            settings=settings,
        )  # fmt: skip
        put(
            store, spec, evaluation("raven", protocol="odd_one_out", odd="any"), [],
            panel_accuracy=0.4 + seed / 10, chance_panel=1 / 9,
            by_position=[0.1 * k for k in range(9)],
            by_attribute={"type": 0.25 + seed / 10, "size": 0.5},
        )  # fmt: skip
    plus = training(model="raise_plus", preset="lite")
    put(store, plus, evaluation("iraven"), [0.987])
    return store


class Page(HTMLParser):
    """Cells of the paper by row of published.csv, links, identifiers, and addresses."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.ids, self.links, self.addresses, self.texts = {}, [], {}, [], {}
        self._row, self._section = None, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[key] for key in ("src", "href") if key in found]
        if "id" in found:
            self.ids.append(found["id"])
            self._section = found["id"]
        if tag == "td":
            self._row = found.get("data-row")
            if self._row is not None:
                assert self._row not in self.cells, "a row of the paper twice"
                self.cells[self._row] = ""
        if tag == "a" and self._row is not None:
            self.links[self._row] = found["href"].removeprefix("#")

    def handle_endtag(self, tag):
        if tag == "td":
            self._row = None

    def handle_data(self, data):
        if self._row is not None:
            self.cells[self._row] += data
        self.texts[self._section] = self.texts.get(self._section, "") + data


@pytest.fixture(scope="module")
def report(filled):
    return build_report(filled, preset="demo", seeds=3)


@pytest.fixture(scope="module")
def files(report):
    return {name: data.decode() for name, data in report.files(png=False).items()}


def loop_over_files(store, dataset, protocol="bottom_right", targets=None, distractors=None):
    """Accuracy of each seed of RAISE on Center, straight from the files."""
    found = {}
    for path in sorted(Path(store.root).glob("trials/raise-center-5pct-*/evaluations/*")):
        spec = json.loads((path / "spec.json").read_text())
        if (spec["protocol"], spec["dataset"], spec["split"]) != (protocol, dataset, "test"):
            continue
        result = json.loads((path / "result.json").read_text())
        if targets:
            (result,) = [
                s for s in result["settings"]
                if (s["targets"], s["distractors"]) == (targets, distractors)
            ]  # fmt: skip
        seed = json.loads((path.parent.parent / "spec.json").read_text())["seed"]
        found[seed] = sum(result["accuracy"]) / len(result["accuracy"])
    return list(found.values())


def rows_of_csv():
    text = Path("artifacts/published.csv").read_text()
    return pd.read_csv(io.StringIO(text)).to_dict("records")


def test_the_page_has_the_912_rows_each_once_with_its_printed_value(files):
    found = Page(files["report.html"])
    rows = rows_of_csv()
    assert sorted(map(int, found.cells)) == list(range(912))
    for place, row in enumerate(rows):
        printed = f"{row['accuracy_percent']:.1f}"
        if not pd.isna(row["std_percent"]):
            printed += f" ± {row['std_percent']:.1f}"
        words = found.cells[str(place)].split()
        assert " ".join(words[-len(printed.split()) :]) == printed


def test_a_number_on_the_page_is_the_stores(files, filled):
    found = Page(files["report.html"])
    shown = 0
    for place, row in enumerate(rows_of_csv()):
        names = {"RAISE", "RAISE-latent"}
        text = " ".join(found.cells[str(place)].split())
        if row["configuration"] != "center" or row["model"] not in names:
            assert str(place) not in found.links
            continue
        if row["table"] == "held_out":
            continue
        dataset = row["dataset"].lower().replace("-", "")
        if row["table"] == "arbitrary_position":
            if dataset == "iraven":
                assert str(place) not in found.links
                continue
            values = loop_over_files(
                filled, dataset, "arbitrary_position", row["num_targets"], row["num_distractors"]
            )
        else:
            values = loop_over_files(filled, dataset)
        assert len(values) == 3
        mean, std = statistics.mean(values), statistics.stdev(values)
        assert text.startswith(f"{100 * mean:.1f} ± {100 * std:.1f} "), (row, text)
        shown += 1
        origin = found.texts[found.links[str(place)]]
        for seed in range(3):
            assert training(seed).name in origin
        assert f"{row['accuracy_percent']:.1f}" in origin
    # Main table and answer selection on both data sets, eight settings of positions on RAVEN.
    assert shown == 2 + 2 + 8


def test_provenance_is_one_click_away(files):
    found = Page(files["report.html"])
    assert set(found.links.values()) <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    (place,) = [
        place for place, row in enumerate(rows_of_csv())
        if (row["table"], row["dataset"], row["configuration"], row["model"])
        == ("bottom_right_selection", "RAVEN", "center", "RAISE")
    ]  # fmt: skip
    origin = found.texts[found.links[str(place)]]
    for wanted in ("Test CPU", "abcdef012345", evaluation("raven").name, "c" * 64, "Wilson",
                   "Student", "rounds", "preset demo"):  # fmt: skip
        assert wanted.lower() in origin.lower(), wanted
    assert '"label_ratio": 0.05' in found.texts[f"t-{training(0).name}"]


def test_the_page_needs_nothing_beside_it(files):
    for address in Page(files["report.html"]).addresses:
        assert address.startswith(("#", "data:")), address
    assert not re.search(r"@import|url\(|fetch\(|https?://", files["report.html"])
    anchors = [a[1:] for a in Page(files["report.html"]).addresses if a.startswith("#")]
    assert set(anchors) <= set(Page(files["report.html"]).ids)


def test_names_are_escaped(store, make_spec, evaluated):
    spec = make_spec(model="<img onerror=x>")
    evaluated(spec, evaluation(), [0.5])
    html = page(build_report(store), [])
    assert "<img onerror" not in html
    assert "&lt;img onerror=x&gt;" in html


def test_csv_has_every_row_and_the_stores_numbers(files, filled):
    frame = pd.read_csv(io.StringIO(files["csv/published_cells.csv"]))
    assert len(frame) == 912
    assert (100 * frame["published"]).round(6).tolist() == [
        row["accuracy_percent"] for row in rows_of_csv()
    ]
    raven = frame[(frame["table"] == "bottom_right_selection") & frame["mean"].notna()]
    assert list(raven["dataset"]) == ["RAVEN", "I-RAVEN"]
    for row, dataset in zip(raven.to_dict("records"), ("raven", "iraven"), strict=True):
        values = loop_over_files(filled, dataset)
        assert row["mean"] == pytest.approx(statistics.mean(values), abs=1e-12)
        assert row["std"] == pytest.approx(statistics.stdev(values), abs=1e-12)
        assert row["rounds_std"] == pytest.approx(0.002 / 2**0.5)
        assert row["trials"].split() == [training(seed).name for seed in range(3)]
        assert row["mark"] == "below"
    assert set(frame["status"]) == {"reproduced", "missing", "no solver"}


def columns_of(line):
    spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return line.replace(r"\&", "").count("&") + 1 + sum(spans) - len(spans)


def test_latex_is_well_formed_and_has_every_published_number(files):
    tables = {name: text for name, text in files.items() if name.endswith(".tex")}
    assert len(tables) == 7
    printed = 0
    for name, text in tables.items():
        depth = 0
        for character in re.sub(r"\\[{}]", "", text):
            depth += {"{": 1, "}": -1}.get(character, 0)
            assert depth >= 0, name
        assert depth == 0, name
        assert text.count("$") % 2 == 0
        opened, closed = (re.findall(rf"\\{w}{{(\w+)}}", text) for w in ("begin", "end"))
        assert opened == closed[::-1] == ["table", "tabular"]
        (spec,) = re.findall(r"\\begin{tabular}{(\w+)}", text)
        rows = [line for line in text.splitlines() if line.endswith(r" \\")]
        assert {columns_of(line) for line in rows} == {len(spec)}, name
        values = [line for line in rows if "(ours)" not in line]
        printed += sum(
            len(re.findall(r"(?<![\d.])\d+\.\d(?! *\d)", re.sub(r"pm\$ [\d.]+", "", v)))
            for v in values
        )
    assert printed == 912
    main = tables["latex/bottom_right_selection.tex"]
    assert r"\label{tab:exp-selection-acc}" in main
    assert "RAISE & 90.0/92.1 & 99.2/99.8 & 98.5/99.6 &" in main
    ours = [line for line in main.splitlines() if line.strip().startswith("RAISE (ours)")]
    expected = [r"82.0 $\pm$ 2.0$^{\downarrow}$/87.0 $\pm$ 2.0$^{\downarrow}$"]
    assert [cell.strip() for cell in ours[0].split("&")][2:3] == expected


def test_markdown_has_ours_beside_the_papers(files):
    lines = files["report.md"].splitlines()
    start = lines.index("### Bottom-right selection, RAVEN")
    row = next(line for line in lines[start:] if line.startswith("| RAISE |"))
    assert row.startswith("| RAISE | · / 90.0 | 82.0 ± 2.0 ↓ / 99.2 | · / 98.5 |")


def test_what_is_missing_is_named_with_its_command(files, report):
    assert report.gaps
    for gap in report.gaps:
        if gap.command:
            assert gap.command in files["report.md"]
            assert gap.command.replace('"', "&#34;").replace("'", "&#39;") in files["report.html"]
    assert report.summary()["cells"]["reproduced"] == 2 + 2 + 8


def test_marks_mean_the_same_in_every_form(files):
    (legend,) = [line for line in files["report.md"].splitlines() if line.startswith("A cell is")]
    assert "↑ ours is above it; ↓ ours is below" in legend
    assert "fewer than 3 seeds" in legend
    assert "the published value lies inside" in legend
    page = re.sub(r"<[^>]*>|\s+", " ", files["report.html"])
    assert re.search(r"↑ +ours is above it; +↓ +ours is below", page)
    assert r"$\uparrow$: ours is above" in files["latex/bottom_right_selection.tex"]


def test_missing_adds_up_with_the_coverage(filled):
    report = build_report(filled, preset="lite", seeds=3)
    counts = report.summary()["cells"]
    assert sum(gap.cells for gap in report.gaps) == counts["missing"] + counts["own model only"]
    assert sum(gap.own_only for gap in report.gaps) == counts["own model only"] == 2
    said = "912 cells: 910 missing, 2 that have a number of our own model only."
    assert said in report.to_markdown()
    assert said in page(report, [])
    assert "1 with a number of our own model only" in report.missing_markdown()
    few = build_report(filled, preset="demo", seeds=5)
    assert "912 cells: 900 missing, 0 that have" in few.missing_text()
    assert "12 of fewer than 5 seeds" in few.missing_text()


def test_own_models_are_filled_up_too(filled):
    report = build_report(filled, preset="lite", store_parameter="s3://raise/store")
    (gap,) = report.own_gaps
    # Of fourteen, I-RAVEN's Center is there.
    assert (gap.models, gap.cells, gap.configurations[0]) == (["raise_plus"], 13, "center")
    assert """-p models='["raise_plus"]'""" in gap.command
    assert gap.command.endswith(""" -p store='"s3://raise/store"'""")
    assert gap.command in report.to_markdown()
    assert gap.command.replace('"', "&#34;").replace("'", "&#39;") in page(report, [])
    (more,) = build_report(filled, preset="lite", seeds=3).own_gaps
    assert more.cells == 14
    assert not build_report(filled, preset="demo").own_gaps


def test_what_a_preset_leaves_out_is_said(filled):
    report = build_report(filled, preset="demo")
    said = "1 finished training of this store is not of preset demo"
    assert report.to_markdown().index(said) < report.to_markdown().index("| table |")
    assert said in page(report, [])
    assert report.summary()["other_trials"] == 1
    assert "not of preset" not in build_report(filled).to_markdown()


def test_an_empty_store_gives_the_papers_numbers_alone(store):
    report = build_report(store)
    found = Page(page(report, []))
    assert len(found.cells) == 912
    assert not found.links
    assert "training_curves" not in {figure.key for figure in report.figures}


def test_results_that_the_paper_lacks_have_tables_of_their_own(filled):
    report = build_report(filled)
    tables = {table.key: table for table in report.own}
    # RAISE plus has a row in the paper's tables.
    assert "own-models" not in tables
    (row,) = tables["odd-one-out"].frame().to_dict("records")
    assert row["panel accuracy"] == "0.500 ± 0.100"
    assert row["chance panel"] == "0.111 ± 0.000"
    (row,) = tables["odd-one-out-by-attribute"].frame().to_dict("records")
    assert row["type"] == "0.350 ± 0.100"
    (row,) = tables["odd-one-out-by-position"].frame().to_dict("records")
    assert [row[str(place)] for place in (1, 9)] == ["0.000 ± 0.000", "0.800 ± 0.000"]
    texts = Page(page(report, [])).texts.values()
    assert any("odd one out" in text and "panel accuracy" in text for text in texts)


def test_an_own_models_numbers_stand_below_the_model_that_it_extends(filled):
    report = build_report(filled, preset="lite")
    tables = {table.key: table for table in report.paper}
    rows = tables["bottom_right_selection-i-raven"].frame().to_dict("records")
    names = [row["Model"] for row in rows]
    place = names.index("RAISE plus")
    assert names[place - 1] == "RAISE"
    assert (rows[place]["Center"], rows[place]["L-R"]) == ("98.7 (lite, 1 seed)", "·")
    assert rows[place - 1]["Center"] == "· / 99.8"
    names = tables["answer_selection_strategy-i-raven"].frame()["Model"].tolist()
    assert "RAISE plus, latent" in names
    assert not any("pixel" in name and "plus" in name for name in names)
    assert "RAISE plus" not in tables["bottom_right_selection-raven"].frame()["Model"].tolist()
    counts = report.summary()["cells"]
    # Main table and answer selection; neither reproduced nor missing.
    assert (counts["reproduced"], counts["own model only"], counts["missing"]) == (0, 2, 910)
    notes = " ".join(tables["bottom_right_selection-i-raven"].notes)
    assert "Nothing of the paper's own models is reproduced yet" in notes
    assert "Rule labels of RAISE plus" in notes
    assert "Center 5 % (merged)" in notes
    assert tables["held_out-raven"].notes == [
        "Nothing of this table is reproduced yet; see Missing."
    ]
    both = build_report(filled).summary()["cells"]
    assert both["own model only"] == 0
    assert both["reproduced"] + both["missing"] == 912


def test_time_to_accuracy_has_a_row_a_training(filled):
    (table,) = [t for t in build_report(filled).own if t.key == "accuracy-against-time"]
    rows = table.frame().to_dict("records")
    assert len(rows) == 4
    assert {row["Training"] for row in rows} == {t.name for t in filled.trials()}
    assert {(row["Steps to 95 %"], row["Paper (test)"]) for row in rows} == {("·", "99.2")}
    assert {row["Minutes in all"] for row in rows} == {"33.3"}


def test_label_ratios_and_ablations_are_told_apart(store, evaluated):
    for ratio, accuracy in ((0.0, 0.2), (0.05, 0.8), (1.0, 0.9)):
        evaluated(training(ratio=ratio), evaluation(), [accuracy])
    longer = training()
    longer = type(longer)(**{**vars(longer), "steps": 7000})
    evaluated(longer, evaluation(), [0.95])
    report = build_report(store, preset=None)
    tables = {table.key: table for table in report.own}
    (row,) = tables["label-ratio"].frame().to_dict("records")
    assert [row[name] for name in ("0 %", "5 %", "100 %")] == ["20.0", "80.0", "90.0"]
    assert "label_ratio" in {figure.key for figure in report.figures}
    # The custom training is preferred to the demo, which stands in the curve.
    (cell,) = [
        c for c in report.cells
        if c.ours and (c.cell.table, c.cell.model) == ("bottom_right_selection", "RAISE")
    ]  # fmt: skip
    assert cell.ours.mean == 0.95
    assert "other-settings" not in tables
    only_demo = {t.key for t in build_report(store, preset="demo").own}
    assert only_demo == {"label-ratio", "accuracy-against-time"}


def test_an_ablation_has_its_own_table_and_no_cell_of_the_paper(store, evaluated):
    plain, plus = (
        shortened(training(model=model, preset="lite")) for model in ("raise", "raise_plus")
    )
    for trial, accuracy in ((as_published(plain), 0.1), (plain, 0.7), (plus, 0.9)):
        evaluated(trial, evaluation(), [accuracy])
    for preset in ("lite", None):
        report = build_report(store, preset=preset)
        (table,) = [t for t in report.own if t.key == "ablation"]
        assert [(row[0].text, row[2].text) for row in table.rows] == [
            ("RAISE, as here", "70.0"),
            ("RAISE, as the authors train", "10.0"),
            ("RAISE plus", "90.0"),
        ]
        assert "so is the time" not in " ".join(table.notes)
        assert "on an idle core" in " ".join(table.notes)
        assert not any(cell.ours for cell in report.cells)
        assert not report.extensions
        assert {t.key for t in report.own} == {"ablation", "accuracy-against-time"}
    assert not build_report(store, preset="demo").own


def test_a_setting_beside_the_tables_says_in_what_it_differs(store, evaluated):
    evaluated(training(preset="lite"), evaluation(), [0.7])
    evaluated(training(preset="demo"), evaluation(), [0.6])
    tables = {table.key: table for table in build_report(store).own}
    (row,) = tables["other-settings"].frame().to_dict("records")
    assert (row["Preset"], row["Ours"]) == ("demo", "60.0")
    assert f"steps {training().steps} ({training(preset='lite').steps})" in row["Differs in"]


@pytest.mark.parametrize(
    ("pattern", "content", "says"),
    [
        ("evaluations/bottom_right-raven-*/result.json", b'{"accuracy"', "result.json is damaged"),
        ("evaluations/bottom_right-raven-*/result.json", b"{}", "problems is missing"),
        ("evaluations/bottom_right-raven-*/result.json", b'{"problems": 5, "accuracy": [1.5]}',
         "accuracy is [1.5]"),
        ("evaluations/arb*/result.json", b'{"problems": 5, "settings": [{"accuracy": [1]}]}',
         "targets is missing"),
        ("evaluations/bottom_right-raven-*/spec.json", b"\xff\xfe", "spec.json is damaged"),
        ("done.json", b"[]", "done.json is damaged"),
        ("spec.json", b"null", "spec.json is damaged"),
        ("curve.parquet", b"PAR1", "curve.parquet is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_one_line(filled, tmp_path, pattern, content, says):
    store = Store(str(tmp_path / "copy"))
    shutil.copytree(filled.root, store.root)
    path = next(Path(store.root).glob(f"trials/raise-center-5pct-s1-*/{pattern}"))
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        build_report(store)
    text = str(caught.value)
    assert says in text
    assert str(path) in text
    assert "\n" not in text


def half_written(path, content):
    with path.open("wb") as file:
        file.write(content[:3])
    raise OSError(errno.ENOSPC, "No space left on device")


def test_files_are_written_whole_and_a_bad_place_is_one_line(tmp_path, monkeypatch):
    write_report({"a/b.txt": b"x"}, tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"x"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half_written)
        with pytest.raises(UserError, match="No space left"):
            write_report({"a/b.txt": b"longer"}, tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"x"
    assert [path.name for path in (tmp_path / "out/a").iterdir()] == ["b.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another with --output"):
        write_report({"a": b""}, tmp_path / "file")
