"""The exception family: one class for each thing that a caller can do about it. The Status of the core has the same."""


class HoldfastError(Exception):
    """Base of every error that Holdfast raises on purpose."""


class InvalidRequest(HoldfastError, ValueError):
    """The call is wrong: fix the call, the declaration or the setting that the message names."""


class Unavailable(HoldfastError):
    """Something outside did not answer or is missing: try again, or mend what the message names."""


class Fenced(HoldfastError):
    """Another owner took over: stop."""


class Corrupt(HoldfastError):
    """Stored bytes are not what was written: restore from elsewhere. Names file, slot and version. Of a Kafka source:
    input that was not read is lost, and the message says how to go on.
    """


class Incompatible(HoldfastError):
    """What is stored and what is declared differ: migrate (savepoint and rescale, or schema evolution)."""


class Undecided(HoldfastError):
    """Nobody says whether something is visible: decide by hand. The message names each thing, and where to look."""


class InternalError(HoldfastError):
    """A bug in Holdfast: report it with the message."""
