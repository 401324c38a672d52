"""The results table's forms: terminal at any width, Markdown, CSV."""

import io
import re

import pandas as pd
import pytest
from rich.console import Console

from artifacts.tables import AVERAGE, CONFIGURATIONS, MISSING, ResultsTable

COLUMNS = [*AVERAGE.values(), *CONFIGURATIONS.values()]
OURS = [f"{60 + place}.{place} ± 1.{place} ↓" for place in range(len(COLUMNS))]
NOTE = " ".join(["prose"] * 40)


@pytest.fixture
def table():
    """Eight numbers with deviation and sign on each test, and an ablation on Center."""
    lines = []
    for test in ("RAVEN", "I-RAVEN"):
        lines += [
            ["RAISE, paper", test, "RAISE", *["99.9"] * len(COLUMNS)],
            ["RAISE, 20 % labels (lite)", test, "RAISE", *OURS],
            ["RAISE (lite, ablation, as published)", test, MISSING, MISSING, "8.3 ± 0.8",
             *[MISSING] * 6],
        ]  # fmt: skip
    return ResultsTable(
        title="Accuracy", heading=["preset [lite]"], notes=[NOTE], missing=[],
        cells=pd.DataFrame(lines, columns=["model", "test", "paper", *COLUMNS]),
        details=pd.DataFrame(),
    )  # fmt: skip


def printed(table, width):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return [line.rstrip() for line in lines]


def test_80_columns_show_every_number_whole_one_configuration_below_the_other(table):
    lines = printed(table, 80)
    assert lines[1] == "preset [lite]"
    text = "\n".join(lines)
    assert "…" not in text
    for name, ours in zip(COLUMNS, OURS, strict=True):
        part = lines[lines.index(name) :]
        assert part[1].split() == ["RAISE,", "paper", "99.9", "99.9"]
        assert part[2].startswith("RAISE, 20 % labels (lite)")
        assert part[2].count(ours) == 2
    ablation = next(line for line in lines if line.startswith("RAISE (lite, ablation"))
    assert ablation.count("8.3 ± 0.8") == 2
    assert text.count("RAISE (lite, ablation") == 1


def test_a_wide_console_has_the_papers_layout(table):
    lines = printed(table, 200)
    assert [line for line in lines if line.split() == COLUMNS]
    ours = [line for line in lines if line.startswith("RAISE, 20 % labels (lite)")]
    assert len(ours) == 2
    assert all(number in ours[0] for number in OURS)
    assert lines.index("RAVEN") < lines.index("I-RAVEN")


@pytest.mark.parametrize("width", [80, 200])
def test_what_the_paper_has_not_is_set_off_from_its_numbers(table, width):
    lines = printed(table, width)
    place = next(i for i, line in enumerate(lines) if line.startswith("RAISE (lite, ablation"))
    assert lines[place - 1] == "beyond the paper"
    assert lines[place - 2].startswith("RAISE, 20 %")


def test_a_narrow_console_breaks_numbers_but_cuts_none(table):
    text = " ".join(printed(table, 34))
    assert "…" not in text
    for ours in OURS:
        mean, _, std, _ = ours.split()
        assert text.count(mean) == 2
        assert len(re.findall(rf"(?<!\d){re.escape(std)}(?!\d)", text)) == 2
    assert text.count("↓") == 2 * len(OURS)


@pytest.mark.parametrize("width", [60, 80, 150])
def test_prose_is_as_wide_as_the_console(table, width):
    lines = [line for line in printed(table, width) if line.startswith("prose")]
    assert len(lines[0]) > width - len("prose ")
    assert " ".join(lines) == NOTE


def test_missing_results_are_named_in_the_terminal_and_in_markdown(table):
    partial = ResultsTable(**{**vars(table), "missing": [f"trial-{place}" for place in range(7)]})
    last = "PARTIAL: 7 results are missing: trial-0, trial-1, trial-2, trial-3, trial-4 and 2 more"
    assert printed(partial, 120)[-1] == last
    assert f"- {last}\n" in partial.to_markdown()
    assert "PARTIAL" not in table.to_markdown()


def test_rows_hold_the_cells(table):
    first = table.to_rows()[0]
    assert list(first) == ["model", "test", "paper", *COLUMNS]
    assert (first["model"], first["Center"]) == ("RAISE, paper", "99.9")
