r"""The paper's tables in LaTeX: same columns and labels, a row of ours below each of the paper's.

They need ``booktabs`` and ``graphicx``.  The labels are those of the paper, so that a table can
take the place of its counterpart.
"""

from collections.abc import Callable, Mapping, Sequence

from artifacts.numbers import percent
from artifacts.paper_cells import PaperCell
from artifacts.paper_tables import LABELS, TITLES
from artifacts.published import Mark
from artifacts.tables import CONFIGURATIONS

_LABELS: Mapping[str, str] = {
    "bottom_right_selection": "tab:exp-selection-acc",
    "bottom_right_selection_no_labels": "tab:sup-exp-selection-acc",
    "bottom_right_selection_uni": "tab:sup-exp-selection-acc-uni",
    "held_out": "tab:exp-held-out",
    "answer_selection_strategy": "tab:sup-answer-selection-strategy",
    "arbitrary_position": "tab:sup-exp-arb-pos-acc-full",
}
_SIGNS: Mapping[Mark | None, str] = {
    "inside": "$^{=}$", "above": r"$^{\uparrow}$", "below": r"$^{\downarrow}$", None: "",
}  # fmt: skip
_NOTHING = "--"
_SPECIAL = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def escape(text: str) -> str:
    """Text for LaTeX; a cross between numbers is one of mathematics."""
    escaped = text.translate(_SPECIAL)
    return escaped.replace("2x2", r"2$\times$2").replace("3x3", r"3$\times$3")


def latex_tables(cells: Sequence[PaperCell]) -> dict[str, str]:
    """By file name: one table each, arbitrary positions one a data set."""
    made = {}
    for table in TITLES:
        of_table = [each for each in cells if each.cell.table == table]
        if table == "arbitrary_position":
            for dataset in dict.fromkeys(each.cell.dataset for each in of_table):
                part = [each for each in of_table if each.cell.dataset == dataset]
                name = dataset.lower().replace("-", "")
                made[f"{table}_{name}.tex"] = _positions(dataset, name, part)
        elif table == "held_out":
            made[f"{table}.tex"] = _held_out(of_table)
        else:
            made[f"{table}.tex"] = _selection(table, of_table)
    return made


def _frame(caption: str, label: str, columns: str, body: Sequence[str]) -> str:
    lines = [
        r"\begin{table}[t]",
        rf"  \caption{{{caption}}}",
        rf"  \label{{{label}}}",
        r"  \centering",
        r"  \resizebox{\linewidth}{!}{%",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        *(f"    {line}" for line in body),
        r"    \bottomrule",
        r"  \end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _caption(title: str, more: str, cells: Sequence[PaperCell]) -> str:
    ours = [each.ours for each in cells if each.ours is not None]
    if not ours:
        return rf"\textbf{{{escape(title)}}}, accuracy (\%){more}, as published."
    presets = ", ".join(dict.fromkeys("/".join(number.presets) for number in ours))
    seeds, problems = (
        "/".join(map(str, sorted({number.spreads[name] for number in ours})))
        for name in ("seeds", "problems")
    )
    return (
        rf"\textbf{{{escape(title)}}}, accuracy (\%){more}. Rows marked ``ours'' are reproduced "
        f"(preset {escape(presets)}; seeds: {seeds}; test problems: {problems}), "
        "the others published; $\\pm$ is the sample standard deviation over seeds. $=$: the "
        "published value lies within ours, $\\uparrow$: ours is above, $\\downarrow$: below; "
        "without a sign where there are fewer than three seeds."
    )


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


Text = Callable[[PaperCell], str]


def _published(each: PaperCell) -> str:
    value = each.cell.value
    std = "" if value.std is None else rf" $\pm$ {percent(value.std)}"
    return percent(value.accuracy) + std


def _ours(each: PaperCell) -> str:
    if each.ours is None:
        return _NOTHING if each.is_buildable else "n/a"
    std = percent(each.ours.spreads["std"])
    return percent(each.ours.mean) + (rf" $\pm$ {std}" if std else "") + _SIGNS[each.mark]


def _pairs(cells: Sequence[PaperCell], text: Text) -> str:
    """RAVEN/I-RAVEN."""
    texts = [text(each) for each in sorted(cells, key=lambda c: c.cell.dataset == "I-RAVEN")]
    return texts[0] if len(set(texts)) == 1 and texts[0] in (_NOTHING, "n/a") else "/".join(texts)


def _selection(table: str, cells: Sequence[PaperCell]) -> str:
    present = {each.cell.configuration for each in cells}
    names = [name for name in LABELS if name in present]
    body = [_line(["Models", *(escape(LABELS[name]) for name in names)]), r"\midrule"]
    for model in dict.fromkeys(each.cell.model for each in cells):
        of_model = [each for each in cells if each.cell.model == model]
        groups = [[c for c in of_model if c.cell.configuration == name] for name in names]
        body.append(_line([escape(model), *(_pairs(group, _published) for group in groups)]))
        if _has_ours(of_model):
            ours = (_pairs(group, _ours) for group in groups)
            body.append(_line([f"{escape(model)} (ours)", *ours]))
    columns = "l" + "c" * len(names)
    caption = _caption(TITLES[table], ", RAVEN/I-RAVEN", cells)
    return _frame(caption, _LABELS[table], columns, body)


def _has_ours(cells: Sequence[PaperCell]) -> bool:
    """A row of ours without any number is left out."""
    return any(each.ours is not None for each in cells)


def _held_out(cells: Sequence[PaperCell]) -> str:
    models = list(dict.fromkeys(each.cell.model for each in cells))
    body = [_line(["Configurations", *(escape(model) for model in models)]), r"\midrule"]
    for name in dict.fromkeys(each.cell.configuration for each in cells):
        found = {each.cell.model: each for each in cells if each.cell.configuration == name}
        label = escape(LABELS[name])
        body.append(_line([label, *(_published(found[model]) for model in models)]))
        if _has_ours(list(found.values())):
            body.append(_line([f"{label} (ours)", *(_ours(found[model]) for model in models)]))
    columns = "l" + "c" * len(models)
    return _frame(_caption(TITLES["held_out"], "", cells), _LABELS["held_out"], columns, body)


def _positions(dataset: str, name: str, cells: Sequence[PaperCell]) -> str:
    body: list[str] = []
    for configuration in CONFIGURATIONS:
        block = [each for each in cells if each.cell.configuration == configuration]
        title = escape(LABELS[configuration])
        body += [r"\midrule"] if body else []
        heads = [rf"\multicolumn{{4}}{{c}}{{{title} $(|T|={targets})$}}" for targets in (1, 2)]
        body += [_line(["", *heads]), r"\cmidrule(lr){2-5}\cmidrule(lr){6-9}"]
        body.append(_line(["Model", *(f"$N_c={n}$" for n in (1, 3, 7, 15, 1, 3, 7, 15))]))
        body.append(r"\midrule")
        for model in dict.fromkeys(each.cell.model for each in block):
            row = sorted(
                (each for each in block if each.cell.model == model),
                key=lambda c: (c.cell.num_targets or 0, c.cell.num_distractors or 0),
            )
            body.append(_line([escape(model), *map(_published, row)]))
            if _has_ours(row):
                body.append(_line([f"{escape(model)} (ours)", *map(_ours, row)]))
    caption = _caption(TITLES["arbitrary_position"], f" on {dataset}", cells)
    return _frame(caption, f"{_LABELS['arbitrary_position']}-{name}", "lcccccccc", body)
