"""The four forms of a report against the store's files, read by a literal loop."""

import errno
import io
import json
import os
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from artifacts.report import build_report, write_report
from artifacts.report_figure import ReportFigure
from artifacts.report_html import page
from raise_model.errors import UserError
from raise_model.store import Store


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


def test_page_and_text_say_what_models_do_otherwise(files):
    said = "the slope of LeakyReLU is the paper's"
    assert said in Page(files["report.html"]).texts["models"]
    assert "### RAISE\n\n- Where the two differ, `paper` takes the code" in files["report.md"]


def test_a_number_on_the_page_is_the_stores(files, filled, training):
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


def test_provenance_is_one_click_away(files, training, evaluation):
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


def test_names_are_escaped(store, make_spec, evaluated, evaluation):
    spec = make_spec(model="<img onerror=x>")
    evaluated(spec, evaluation(), [0.5])
    html = page(build_report(store), [])
    assert "<img onerror" not in html
    assert "&lt;img onerror=x&gt;" in html


def test_csv_has_every_row_and_the_stores_numbers(files, filled, training):
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


def test_marks_mean_the_same_in_every_form(files):
    (legend,) = [line for line in files["report.md"].splitlines() if line.startswith("A cell is")]
    assert "↑ ours is above it; ↓ ours is below" in legend
    assert "fewer than 3 seeds" in legend
    assert "the published value lies inside" in legend
    page = re.sub(r"<[^>]*>|\s+", " ", files["report.html"])
    assert re.search(r"↑ +ours is above it; +↓ +ours is below", page)
    assert r"$\uparrow$: ours is above" in files["latex/bottom_right_selection.tex"]


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


def full(*paths):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_files_are_written_whole_and_a_bad_place_is_one_line(tmp_path, monkeypatch):
    write_report({"a/b.txt": b"x"}, tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"x"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UserError, match="No space left"):
            write_report({"a/b.txt": b"longer"}, tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"x"
    assert [path.name for path in (tmp_path / "out/a").iterdir()] == ["b.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another with --output"):
        write_report({"a": b""}, tmp_path / "file")


def test_the_contents_link_every_section_table_and_figure(report, filled):
    figure = ReportFigure(key="one", title="One", caption="", draw=lambda: None)
    text = page(report, [(figure, b"<svg/>")])
    nav = text[text.index("<nav") : text.index("</nav>")]
    linked = re.findall(r'href="#([^"]+)"', nav)
    found = Page(text)
    assert set(linked) <= set(found.ids)
    sections = re.findall(r'<h2 id="([^"]+)"', text)
    assert {"coverage", "paper", "own", "figures", "missing", "trainings"} <= set(sections)
    tables = [table.key for table in (*report.paper, *report.own)]
    parts = [f"missing-{place}" for place in range(1, len(report.missing()) + 1)]
    assert {*sections, *tables, *parts, "figure-one", "reading"} == set(linked)


def test_scripts_can_read_what_columns_are_sorted_by(filled):
    html = page(build_report(filled, preset="lite"), [])
    keys = re.findall(r'data-sort="([^"]*)"', html)
    assert "-Infinity" in keys
    assert not [key for key in keys if not re.fullmatch(r"-?(Infinity|[\d.]+(e-?\d+)?)", key)]


def test_commands_in_prose_are_code(filled):
    html = page(build_report(filled, preset="demo"), [])
    assert "<code>raise-rpm report</code> without" in html
    assert "`" not in html[html.index("<main>") : html.index("<script>")]


def test_rounding_is_said_where_it_is_done(files):
    for name in ("report.md", "report.html"):
        assert "Halves are rounded away from zero: 6.25 is shown as 6.3." in files[name]


def test_provenance_has_the_published_names(files, evaluation):
    html = files["report.html"]
    assert "RAISE · Center · I-RAVEN · bottom right · 5 % labels" in html
    assert "RAISE · Center · RAVEN · Odd-one-out: any panel · panel accuracy" in html
    text = re.sub(r"<pre>.*?</pre>|<[^>]*>", "", html, flags=re.DOTALL)
    names = {evaluation("iraven").name, evaluation("iraven", split="val").name}
    for name in names:
        text = text.replace(name, "")
    assert "iraven" not in text
