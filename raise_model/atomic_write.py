"""Files of a local file system that are there whole or not at all.

The bytes go to a temporary file in the same folder, which is then renamed or linked to its
name; a process killed in between leaves a file whose name begins with :data:`TEMPORARY`.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".writing-"
"""How names of temporary files begin."""


def replace(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Create or replace a file, and the folders above it.

    :param durable: wait until the disk has it.
    :raises OSError: if that fails; the file is then as it was before.
    """
    with _written(path, data, durable=durable) as temporary:
        os.replace(temporary, path)


def create(path: Path, data: bytes) -> None:
    """Create a file, and the folders above it; waits until the disk has it.

    :raises FileExistsError: if the path exists, which is then left as it is.
    :raises OSError: if it cannot be written; it is then not there.
    """
    with _written(path, data, durable=True) as temporary:
        os.link(temporary, path)


@contextlib.contextmanager
def _written(target: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    """A temporary file beside ``target`` holding ``data``, gone afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
        if durable:
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        # Writing and syncing do not say of what.
        error.filename = error.filename or str(target)
        raise
    finally:
        # The error that ended the writing is the one to be seen.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
