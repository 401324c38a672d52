"""What a user can mend."""


class UserError(Exception):
    """A mistake of the user: one line that says what, where and how to mend it.

    Command lines print it after ``error:`` and exit with status 2; flows fail with it.
    """
