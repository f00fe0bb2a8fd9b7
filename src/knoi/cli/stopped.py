"""A command that was told to end before it was done."""


class Stopped(Exception):  # noqa: N818
    """Carries the line to say and the exit code; it is no error, so `--debug` shows no traceback.

    Parameters
    ----------
    message : str
        What became of the work, and how to go on.
    code : int
        130 after Ctrl-C, 143 after SIGTERM.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
