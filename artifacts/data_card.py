"""Data cards: what a data set holds, as numbers, Markdown and plots."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure

from artifacts.aggregate import wilson_interval
from artifacts.markdown import pipe_table
from artifacts.problem_pictures import component_name
from raise_model.data import schema
from raise_model.data.audit import Overlap, context_digests, overlap
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.reader import find_manifests
from raise_model.data.schema import Manifest
from raise_model.data.shortcut import closest_by_attributes, closest_by_pixels
from raise_model.errors import UserError
from raise_model.matrix import NUM_CANDIDATES, NUM_PANELS
from raise_model.store import Store

LEVELS = ("type", "size", "color", "angle")
CONTEXT = NUM_PANELS - 1
Progress = Callable[[int, int], None]


@dataclass(kw_only=True)
class DataCard:
    """Counts of one data set and configuration over all its splits."""

    dataset: str
    configuration: str
    manifests: Sequence[Manifest]
    targets: Counter[int] = field(default_factory=Counter)
    rules: dict[tuple[int, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By component and group (number_position, type, size, color): problems with each rule."""
    histograms: dict[tuple[int, str], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """By component and attribute, over the eight panels of the contexts: panels with each number
    of entities, entities of each level, problems of each uniformity level (first panel)."""
    repeated: dict[str, int] = field(default_factory=dict)
    """By pair of splits: problems of the second whose nine panels are in the first."""
    ambiguous: int = 0
    """Problems with a distractor that equals the answer to the pixel."""
    shortcut_pixels: int = 0
    """Problems whose answer is the candidate closest to the others, by pixels."""
    shortcut_attributes: int = 0
    """The same by attribute values."""
    overlaps: dict[str, Overlap] = field(default_factory=dict)
    """By other data set: our test problems that are its training problems."""

    @property
    def problems(self) -> int:
        return sum(manifest.problems for manifest in self.manifests)

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.configuration}"

    def to_json(self) -> dict[str, Any]:
        """Every number, in a form that JSON takes."""
        return {
            "dataset": self.dataset,
            "configuration": self.configuration,
            "splits": {m.split: {"problems": m.problems, "digest": m.digest}
                       for m in self.manifests},
            "recipe": dict(self.manifests[0].recipe),
            "targets": {str(key): count for key, count in sorted(self.targets.items())},
            "rules": {f"{c}/{group}": dict(counts) for (c, group), counts in self.rules.items()},
            "histograms": {
                f"{c}/{name}": {str(k): counts[k] for k in sorted(counts)}
                for (c, name), counts in self.histograms.items()
            },
            "repeated": self.repeated,
            "ambiguous": self.ambiguous,
            "shortcut_pixels": self.shortcut_pixels,
            "shortcut_attributes": self.shortcut_attributes,
            "overlaps": {name: len(found.seen) for name, found in self.overlaps.items()},
        }  # fmt: skip


def make_card(
    store: Store,
    dataset: str,
    configuration: str,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> DataCard:
    """Count every split of a data set that is in the store.

    :param cache: folder of this machine where hashes of contexts are kept.
    :param progress: called with problems counted and problems to count.
    :raises UserError: if there is no such data set.
    """
    manifests = find_manifests(store, dataset, configuration)
    card = DataCard(dataset=dataset, configuration=configuration, manifests=manifests)
    done = 0
    for manifest in manifests:
        for chunk in schema.read_chunks(store, manifest, schema.SCHEMA.names):
            _count_annotations(card, chunk)
            _count_candidates(card, chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, card.problems)
    digests = {m.split: context_digests(store, m, cache) for m in manifests}
    for place, (split, known) in enumerate(digests.items()):
        contexts = set(known.values())
        card.repeated[split] = len(known) - len(contexts)
        for other in list(digests)[place + 1 :]:
            shared = sum(digest in contexts for digest in digests[other].values())
            card.repeated[f"{split}, {other}"] = shared
    card.overlaps = _overlaps(store, card, cache)
    return card


def _overlaps(store: Store, card: DataCard, cache: Path | None) -> dict[str, Overlap]:
    """Our test problems in the training splits of the other data sets of the store."""
    tests = [manifest for manifest in card.manifests if manifest.split == "test"]
    found = {}
    for other in (name.removeprefix("dataset=") for name in store.list("datasets")):
        train = schema.find_manifest(store, other, card.configuration, "train")
        if other != card.dataset and train is not None and tests:
            found[other] = overlap(store, [train], tests, cache)
    return found


def _count_annotations(card: DataCard, chunk: pa.RecordBatch) -> None:
    card.targets.update(chunk.column("target").to_pylist())
    for problem in chunk.column("rules").to_pylist():
        for rule in problem:
            attribute = rule["attribute"]
            group = attribute if attribute in LEVELS else "number_position"
            what = rule["rule"] if attribute == group else f"{rule['rule']} of {attribute}"
            if rule["value"]:
                what += f" {rule['value']:+d}"
            card.rules[rule["component"], group][what] += 1
    entities, layouts = (_by_panel(chunk.column(name)) for name in ("entities", "layouts"))
    for component in range(len(CONFIGURATIONS[card.configuration].components)):
        context = (entities["panel"] < CONTEXT) & (entities["component"] == component)
        for name in LEVELS:
            card.histograms[component, name].update(entities[name][context].tolist())
        own = layouts["component"] == component
        numbers = 1 + layouts["number"][own & (layouts["panel"] < CONTEXT)]
        card.histograms[component, "number"].update(numbers.tolist())
        first = layouts["uniformity"][own & (layouts["panel"] == 0)]
        card.histograms[component, "uniformity"].update(first.tolist())


def _by_panel(column: pa.ListArray) -> dict[str, np.ndarray]:
    """The columns of what panels hold, one row each, and the panel (0 to 15) that it is in."""
    panels = column.flatten()
    lengths = panels.value_lengths().to_numpy()
    numbers = np.arange(len(panels)) % schema.PANELS_PER_PROBLEM
    rows = panels.flatten()
    columns = {
        field.name: values.to_numpy(zero_copy_only=False)
        for field, values in zip(rows.type, rows.flatten(), strict=True)
        if pa.types.is_integer(field.type)
    }
    return {"panel": np.repeat(numbers, lengths)} | columns


def _count_candidates(card: DataCard, chunk: pa.RecordBatch) -> None:
    columns = (chunk.column(name).to_pylist() for name in ("target", "entities"))
    for panels, target, entities in zip(schema.panels_of(chunk), *columns, strict=True):
        offered = panels[CONTEXT:]
        same = (offered == offered[target]).reshape(NUM_CANDIDATES, -1).all(1)
        card.ambiguous += int(same.sum() > 1)
        card.shortcut_pixels += int(closest_by_pixels(panels) == target)
        card.shortcut_attributes += int(closest_by_attributes(entities) == target)


def to_markdown(card: DataCard) -> str:
    """The card as text, with its plots as images beside it."""
    splits = pd.DataFrame(
        [{"split": m.split, "problems": m.problems, "digest": m.digest[:16]}
         for m in card.manifests]
    )  # fmt: skip
    made = card.manifests[0].recipe
    recipe = ", ".join(f"{key} {value}" for key, value in made.items() if key != "problems")
    parts = [
        f"# {card.name}",
        f"Made from: {recipe}; written by raise-rpm {card.manifests[0].version}.",
        pipe_table(splits),
        "## Rules\n\nShare of the problems, in percent, by component and group.",
        pipe_table(_rule_table(card)),
        "![attributes](attributes.png)",
        "Counted over the eight panels of each context: numbers of entities by panel, all other "
        "levels by entity.",
        "## Candidates",
        pipe_table(_candidate_table(card)),
        "## Repeated problems\n\nProblems of the second split whose nine panels (context and "
        "answer) are in the first; of other data sets, our test problems in their training split.",
        pipe_table(_repeated_table(card)),
    ]
    return "\n\n".join(parts) + "\n"


def _rule_table(card: DataCard) -> pd.DataFrame:
    rows = []
    for (component, group), counts in sorted(card.rules.items()):
        total = sum(counts.values())
        shares = ", ".join(f"{what} {100 * n / total:.1f}" for what, n in sorted(counts.items()))
        name = component_name(card.configuration, component)
        rows.append({"component": name, "group": group, "rules": shares})
    return pd.DataFrame(rows)


def _candidate_table(card: DataCard) -> pd.DataFrame:
    rows = [("a distractor equals the answer", card.ambiguous, "")]
    for what, hits in (
        ("closest to the others by pixels is the answer", card.shortcut_pixels),
        ("closest to the others by attributes is the answer", card.shortcut_attributes),
    ):
        low, high = wilson_interval(hits / card.problems, card.problems)
        rows.append((what, hits, f"{100 * low:.1f}..{100 * high:.1f}, chance 12.5"))
    rows += [(f"candidate {k} is the answer", n, "") for k, n in sorted(card.targets.items())]
    return pd.DataFrame(
        [{"": what, "problems": n, "percent": f"{100 * n / card.problems:.2f}",
          "Wilson 95 %": interval} for what, n, interval in rows]
    )  # fmt: skip


def _repeated_table(card: DataCard) -> pd.DataFrame:
    rows = [
        {"in": split if "," in split else f"{split}, {split}", "problems": count}
        for split, count in card.repeated.items()
    ]
    rows += [
        {"in": f"train of {name}, test", "problems": len(found.seen)}
        for name, found in card.overlaps.items()
    ]
    return pd.DataFrame(rows)


def draw_attributes(card: DataCard) -> Figure:
    """Histograms: a row a component, a column an attribute."""
    components = range(len(CONFIGURATIONS[card.configuration].components))
    names = ("number", *LEVELS, "uniformity")
    figure, grid = plt.subplots(
        len(components), len(names), squeeze=False, layout="constrained",
        figsize=(2.2 * len(names), 2.0 * len(components) + 0.4),
    )  # fmt: skip
    for component, row in zip(components, grid, strict=True):
        for name, axes in zip(names, row, strict=True):
            counts = card.histograms[component, name]
            levels = sorted(counts)
            shares = np.array([counts[level] for level in levels]) / sum(counts.values())
            axes.bar(levels, shares, color="#0072b2")
            axes.set_xticks(levels)
            axes.set_title(f"{component_name(card.configuration, component)}: {name}", fontsize=9)
            axes.tick_params(labelsize=7)
    figure.suptitle(f"{card.name}: share of each level", fontsize=11)
    return figure


def write_card(card: DataCard, folder: Path) -> Path:
    """Write ``README.md`` and its plots; return the path of the text.

    :raises UserError: if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure = draw_attributes(card)
        figure.savefig(folder / "attributes.png", dpi=110)
        plt.close(figure)
        text = folder / "README.md"
        text.write_text(to_markdown(card))
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; choose another with --output"
        ) from error
    return text
