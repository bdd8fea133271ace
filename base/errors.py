"""The base class of all errors that Congreve raises deliberately."""


class CongreveError(Exception):
    """The base class of Congreve's errors; the text says what is wrong and what to do."""
