"""Sweeps on Ray: the trainable, the Tuner, evaluations, the connection to a cluster.

Ray reads these when it is imported, so they are set before any module here imports it.  What
the user has set wins.
"""

import os

# Under `uv run` Ray would start every worker through uv again: slow, and broken offline.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Warnings about Ray Train's interface, which is not used here.
os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
# The driver keeps its own records: no tables on the terminal, no csv, json and tensorboard
# files, no experiment state on every step; signals are handled by sweep.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "86400")
# Where a given-up trial's process takes longer to end than this (2 s by default: CUDA, a store
# that hangs), Tune loses the next trial of its slot without a word.
os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", "60")
os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
