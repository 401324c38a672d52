"""Search space of RAISE, of ``raise`` and of ``raise_plus``."""

from collections.abc import Mapping

from ray import tune
from ray.tune.search.sample import Domain

from raise_model.models.raise_net import config
from raise_model.models.raise_net.config import RaiseConfig
from tune_spaces.search_space import SearchSpace, log_around, papers


def _domains(around: RaiseConfig) -> Mapping[str, Domain]:
    return {
        "learning_rate": log_around(around.learning_rate, 4.0),
        "beta_prediction": log_around(around.beta_prediction, 4.0),
        "beta_rule": log_around(around.beta_rule, 4.0),
        "beta_label": log_around(around.beta_label, 4.0),
        # Never fewer: each attribute needs a concept of its own, and the paper found that
        # redundant ones do no harm.
        "num_concepts": tune.choice([around.num_concepts + more for more in (0, 2, 4)]),
    }


SPACE = SearchSpace(
    model="raise",
    domains=_domains,
    paper=papers(
        lambda _: config.paper(),
        (
            "learning_rate",
            "labelled_batch",
            "unlabelled_batch",
            "num_rules",
            "num_concepts",
            "concept_size",
            "sigma_x",
            "sigma_z",
            "beta_prediction",
            "beta_rule",
            "beta_label",
        ),
    ),
)
PLUS_SPACE = SearchSpace(model="raise_plus", domains=_domains, paper={})
