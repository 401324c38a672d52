"""The search space of each model."""

from collections.abc import Mapping

from raise_model.errors import UserError
from tune_spaces import anp, clap, lgpp, raise_net, transformer
from tune_spaces.search_space import SearchSpace

SPACES: Mapping[str, SearchSpace] = {
    space.model: space
    for space in (
        anp.SPACE,
        clap.SPACE,
        lgpp.SPACE,
        raise_net.SPACE,
        raise_net.PLUS_SPACE,
        transformer.SPACE,
    )
}


def space_of(model: str) -> SearchSpace:
    """:raises UserError: for a model without one."""
    if model not in SPACES:
        raise UserError(f"no search space for model {model}; there is one for {', '.join(SPACES)}")
    return SPACES[model]
