"""The root of dragonrt's errors: what a user sees as one line and a non-zero exit code."""


class DragonError(Exception):
    """Something the user or the other side got wrong.

    The message is one line that says what was wrong and what to do. Packages subclass it; the
    command line prints the message without a traceback and exits with code 1.
    """
