"""Exceptions that the command line prints as one sentence, without a traceback."""


class UserError(Exception):
    """Something a user can mend; the message says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2. Anything else that is raised is a bug and keeps its
    traceback.
    """


class SharedUserError(UserError):
    """A UserError that every process of a group raises; the leading one prints it."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to stop. The command line exits with status 128 + number: 130 for SIGINT, 143 for
    SIGTERM."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number, self.message = number, message


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the machine or on the GPU."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "can't allocate memory" in said
