"""Errors of the server that are not answers to a request."""


class StartupError(Exception):
    """The server cannot start; the message is one line that says what to do."""
