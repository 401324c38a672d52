"""Markdown of frames (pandas would need another package for it)."""

import pandas as pd


def pipe_table(frame: pd.DataFrame) -> str:
    """A pipe table; bars in cells are escaped."""
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [[str(v).replace("|", "\\|") for v in row] for row in frame.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
