"""What an object store's errors mean: try again, or tell the caller. Texts lose whatever may be secret in them.

Servers answer with pages of XML that repeat keys, signatures and tokens of the request, and URLs may carry a signature.
So of an error only the first line without users and options of URLs, the code and the message are told, and nothing is
chained.
"""

from __future__ import annotations

import re

from obstore import exceptions

_STATUS = re.compile(r"status code: (\d{3})")
_USER_OF_URL = re.compile(r"(https?://)[^\s/?\"]*@")
_OPTIONS_OF_URL = re.compile(r"(https?://[^\s?\"]*)\?[^\s\"]*")
_SAID = re.compile(r"<(Code|Message)>([^<]{1,300})</")
_CAUSE = re.compile(r'message: "([^"]{1,200})"|kind: (TimedOut|Timeout|Decode|Interrupted)')
# Of the client's side, and yet of use to try again: a time limit, a conflict of two writers, too many requests.
_TRY_AGAIN = frozenset({408, 409, 425, 429})
_TRY_AGAIN_CODES = ("RequestTimeout", "SlowDown", "OperationAborted", "ConditionalRequestConflict", "ServerBusy")
# A bucket that is not there looks as if a file were not: nothing of it may be taken for an empty state.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound")
_FINAL = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
    exceptions.UnknownConfigurationKeyError,
)


def told(error: BaseException) -> str:
    """An error in one line, without secrets."""
    text = str(error)
    first = _USER_OF_URL.sub(r"\1***@", re.split(r"[<{\n]", text, maxsplit=1)[0])
    first = _OPTIONS_OF_URL.sub(r"\1?***", first).strip(" :-")
    # The page is there twice: as it came, and in the description of the error.
    said = list(dict.fromkeys(value for _, value in _SAID.findall(text)))
    if not said:
        said = sorted({one or two for one, two in _CAUSE.findall(text)})
    return f"{first}: {', '.join(said)}" if said else first


def is_missing(error: BaseException) -> bool:
    """Whether the store answered that there is no such file; that there is no such bucket is another thing."""
    return isinstance(error, FileNotFoundError) and not any(code in str(error) for code in _NO_BUCKET)


def _status(error: BaseException) -> int:
    """Of the answer; 0 where none came."""
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else 0


class ObjectAnswers:
    """For Patience."""

    errors: tuple[type[Exception], ...] = (exceptions.BaseError,)

    def told(self, error: BaseException) -> str:
        return told(error)

    def is_missing(self, error: BaseException) -> bool:
        return is_missing(error)

    def is_final(self, error: BaseException) -> bool:
        if isinstance(error, (*_FINAL, FileNotFoundError)) or "builder error" in str(error):  # that is: no such URL
            return True
        if any(f"<Code>{code}<" in str(error) for code in _TRY_AGAIN_CODES):
            return False
        return 300 <= _status(error) < 500 and _status(error) not in _TRY_AGAIN

    def way_out(self, error: BaseException) -> str:
        text = str(error)
        if any(code in text for code in _NO_BUCKET):
            return "there is no such bucket: make it, or correct its name or spark.holdfast.storage.endpoint"
        refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        if isinstance(error, refused) or _status(error) in (401, 403):
            return (
                "give this user, or this machine's role, the right to read, write, list and delete there "
                "(docs/guide/storage.md has the policy)"
            )
        if 300 <= _status(error) < 400:
            return "the bucket is in another region: set spark.holdfast.storage.region, or AWS_REGION"
        return "see whether the store is reached from this machine, and with which credentials (docs/guide/storage.md)"
