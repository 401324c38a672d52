"""Generated problems are distributed as those of the published generators.

Counts of rules, their values, targets, uniformity, constant angles and what distractors change
are compared by two-sample chi-square tests, with Holm's correction over all of them.  Entities of
a problem are alike, so that even the published generator fails such a test against itself: the
histograms over panels and entities are compared by their total variation distance.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from raise_model.data import generate as generate_module
from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS

STATS = json.loads((Path(__file__).parents[2] / "data" / "raven_stats.json").read_text())
FAMILY_LEVEL = 0.001
ENTITY_LEVELS = ("type", "size", "color", "angle")
TESTED = ("rule", "target", "uniformity", "angles_constant_in_rows", "distractor")
SEEDS = (1234, 4321, 7)

NAMES = {"number_position": "Number/Position", "distribute_three": "Distribute_Three"}
GROUPS = {"type": "Type", "size": "Size", "color": "Color"}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Problems without pictures: only annotations are counted."""
    monkeypatch.setattr(generate_module, "render_panels", lambda *_: None)


def published_name(name):
    return NAMES.get(name, name.capitalize())


def component_of(panel, component):
    return [entity for entity in panel if entity["component"] == component]


def counted(dataset, name, seed, problems):
    counts = defaultdict(Counter)
    components = range(len(CONFIGURATIONS[name].components))
    for index in range(problems):
        problem = make_problem(dataset, name, seed, index)
        counts["target"][str(problem.target)] += 1
        for rule in problem.rules:
            c, group = rule["component"], GROUPS.get(rule["attribute"], "NumPos")
            what = f"{published_name(rule['rule'])}:{published_name(rule['attribute'])}"
            counts[f"rule_c{c}_{group}"][what] += 1
            if rule["value"]:
                counts[f"rule_value_c{c}_{group}"][f"{what}:{rule['value']}"] += 1
        for layout in problem.layouts[0]:
            uniform = str(layout["uniformity"] == 3)
            counts[f"uniformity_c{layout['component']}"][uniform] += 1
        for c in components:
            panels = [component_of(panel, c) for panel in problem.entities]
            angles = [sorted(entity["angle"] for entity in panel) for panel in panels[:6]]
            constant = all(angles[row] == angles[row + k] for row in (0, 3) for k in (1, 2))
            counts[f"angles_constant_in_rows_c{c}"][str(constant)] += 1
            for panel in panels[:8]:
                counts[f"number_c{c}"][str(len(panel))] += 1
                for entity in panel:
                    for attribute in ENTITY_LEVELS:
                        counts[f"{attribute}_c{c}"][str(entity[attribute])] += 1
        answer = problem.entities[8 + problem.target]
        for candidate in range(8):
            if candidate != problem.target:
                changed = difference(answer, problem.entities[8 + candidate], components)
                counts["distractor_changed"]["+".join(sorted(changed))] += 1
                counts["distractor_num_changed"][str(len(changed))] += 1
    return counts


def difference(answer, other, components):
    """As the statistics have it: another number or position hides what else differs."""
    changed = []
    for c in components:
        old, new = component_of(answer, c), component_of(other, c)
        if len(old) != len(new):
            changed.append(f"number{c}")
        elif [e["slot"] for e in old] != [e["slot"] for e in new]:
            changed.append(f"position{c}")
        else:
            changed += [
                f"{attribute}{c}"
                for attribute in ("type", "size", "color")
                if [e[attribute] for e in old] != [e[attribute] for e in new]
            ]
    return changed


def table(ours, reference):
    kinds = sorted(set(ours) | set(reference))
    return np.array([[counts.get(kind, 0) for kind in kinds] for counts in (ours, reference)])


def compare(counts, name, reference):
    """p-values of the counts per problem, and total variation distances of the others."""
    p_values, distances = {}, {}
    for key, ours in counts.items():
        if key.startswith("angle_") and CONFIGURATIONS[name].uniform:
            continue  # ours are level 3, the published statistics are not
        both = table(ours, reference[key])
        if key.startswith(TESTED):
            if both.shape[1] > 1:
                p_values[key] = chi2_contingency(both).pvalue
        else:
            shares = both / both.sum(1, keepdims=True)
            distances[key] = abs(shares[0] - shares[1]).sum() / 2
    return p_values, distances


def rejected(p_values, level):
    """Tests that Holm's procedure rejects."""
    for place, (_, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > level / (len(p_values) - place):
            return sorted(p_values, key=p_values.get)[:place]
    return list(p_values)


def assert_alike(dataset_names, seeds, problems, distance):
    p_values = {}
    for seed in seeds:
        for dataset, name in dataset_names:
            counts = counted(dataset, name, seed, problems)
            found, distances = compare(counts, name, STATS[dataset][name]["counts"])
            assert max(distances.values()) <= distance, (dataset, name, seed, distances)
            p_values |= {(dataset, name, seed, key): p for key, p in found.items()}
    assert rejected(p_values, FAMILY_LEVEL) == []
    return p_values


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
def test_a_few_problems_are_distributed_as_published(dataset):
    names = [(dataset, name) for name in ("center", "out_in_grid", "grid_2x2", "grid_3x3")]
    assert len(assert_alike(names, SEEDS[:1], 500, distance=0.06)) > 30


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_problems_of_three_seeds_are_distributed_as_published():
    names = [(dataset, name) for dataset in ("raven", "iraven") for name in CONFIGURATIONS]
    assert len(assert_alike(names, SEEDS, 10_000, distance=0.03)) > 700


def test_another_distribution_is_noticed():
    """The test has power: half as many constant sizes are seen in a few hundred problems."""
    counts = counted("raven", "center", SEEDS[1], 500)
    sizes = counts["rule_c0_Size"]
    moved = sizes["Constant:Size"] // 2
    sizes["Constant:Size"] -= moved
    sizes["Progression:Size"] += moved
    p_values, _ = compare(counts, "center", STATS["raven"]["center"]["counts"])
    assert rejected(p_values, FAMILY_LEVEL) == ["rule_c0_Size"]


def test_a_wider_histogram_is_noticed():
    counts = counted("raven", "center", SEEDS[1], 500)
    sizes = counts["size_c0"]
    moved = sizes["5"] // 2
    sizes["5"] -= moved
    sizes["0"] += moved
    _, distances = compare(counts, "center", STATS["raven"]["center"]["counts"])
    assert distances["size_c0"] > 0.05
