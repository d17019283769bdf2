"""What an object store's errors mean: try again, or tell the caller. Texts lose whatever may be secret in them.

Servers answer with pages of XML that repeat keys, signatures and tokens of the request, and URLs may carry a signature.
So of an error only the first line without options of URLs, the code and the message are told, and nothing is chained.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from obstore import exceptions

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Unavailable
from holdfast.storage.options import StorageOptions

T = TypeVar("T")
_LOGGER = logging.getLogger("holdfast.storage")
_BACKOFF_MS_MAX = 10_000
_STATUS = re.compile(r"status code: (\d{3})")
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


class TryAgainError(Exception):
    """An answer that contradicts another, as while two write at once: asked again."""


def told(error: BaseException) -> str:
    """An error in one line, without secrets."""
    text = str(error)
    first = _OPTIONS_OF_URL.sub(r"\1?***", re.split(r"[<{\n]", text, maxsplit=1)[0]).strip(" :-")
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


def _is_final(error: BaseException) -> bool:
    if isinstance(error, (*_FINAL, FileNotFoundError)) or "builder error" in str(error):  # that is: no such URL
        return True
    if any(f"<Code>{code}<" in str(error) for code in _TRY_AGAIN_CODES):
        return False
    return 300 <= _status(error) < 500 and _status(error) not in _TRY_AGAIN


def _way_out(error: BaseException) -> str:
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


@dataclass(frozen=True)
class Patience:
    """How long a store is asked again, and by which clock. ``sleep`` takes seconds."""

    uri: str
    options: StorageOptions
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep

    def call(self, doing: str, name: str, action: Callable[[], T], *, may_miss: bool = False) -> T:
        """What ``action`` gives. It may be called several times, also after one whose answer was lost.

        Raises
        ------
        FileNotFoundError
            There is no such file, where that is an answer (``may_miss``).
        Unavailable
            The store does not answer, or refuses: says which.
        """
        started_ms = self.clock.elapsed_ms()
        pause_ms = max(1, self.options.retry_backoff_ms)
        attempts = 0
        while True:
            attempts += 1
            try:
                return action()
            except (exceptions.BaseError, OSError, TryAgainError) as error:
                if may_miss and is_missing(error):
                    raise
                what = f"{doing} {name!r} in {self.uri} failed"
                if _is_final(error):
                    raise Unavailable(f"{what}: {told(error)}; {_way_out(error)}") from None
                spent_ms = self.clock.elapsed_ms() - started_ms
                if spent_ms + pause_ms > self.options.retry_max_ms:
                    raise Unavailable(
                        f"{what} {attempts} times in {spent_ms / 1000:.1f} s; the limit is "
                        f"{self.options.retry_max_ms / 1000:g} s (spark.holdfast.storage.retry.max). Last: "
                        f"{told(error)}; {_way_out(error)}"
                    ) from None
                _LOGGER.warning("%s and is tried again in %d ms: %s", what, pause_ms, told(error))
            self.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _BACKOFF_MS_MAX)
