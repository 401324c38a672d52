"""Numbers and names of a Raven's Progressive Matrix.

Beside :mod:`raise_model.problem`, which needs torch: what makes and reads data does not, and
its worker processes start in a tenth of the time without it.
"""

NUM_PANELS = 9
NUM_CANDIDATES = 8
BOTTOM_RIGHT = 8
UNLABELLED = -1

RULES = ("constant", "progression", "arithmetic", "distribute_three")
"""Names of the rule ids 0..3 of every label map."""
