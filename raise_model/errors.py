"""What a user can mend."""

import errno
from collections.abc import Mapping


class UserError(Exception):
    """A mistake of the user: one line that says what, where and how to mend it.

    Command lines print it after ``error:`` and exit with status 2; flows fail with it.
    """


class StoreAway(ConnectionError):
    """An S3 store does not answer, or says that it is in trouble; it may be back later."""


_CURES: Mapping[int, str] = {
    errno.ENOSPC: "free space there, or choose another place",
    errno.EDQUOT: "free space there, or choose another place",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "get the rights to it, or choose another place",
    errno.EPERM: "get the rights to it, or choose another place",
    errno.ENOTDIR: "give a folder",
    errno.EISDIR: "give a file",
    errno.EEXIST: "choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "look at the disk",
}


def cure_of(error: BaseException) -> str:
    """How to mend what the machine says of a place; empty if that is not known."""
    return _CURES.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def place_error(error: OSError) -> UserError | None:
    """One line for an error that the machine made of a place the user named: full, read-only,
    a file where a folder should be ...; None for every other.
    """
    cure = cure_of(error)
    if not cure:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return UserError(f"{where}{error.strerror}; {cure}, and run the same command again")
