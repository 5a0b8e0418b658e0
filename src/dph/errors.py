"""The one exception for a user's mistake: the command line prints it as one sentence, without a traceback."""


class UserError(Exception):
    """Something a user can mend; the message says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2. Anything else that is raised is a bug and keeps its
    traceback.
    """
