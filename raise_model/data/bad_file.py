"""Why a file of a data set cannot be read."""


class BadFile(ValueError):
    """Why a problem or a file cannot be read, in one line without its path."""
