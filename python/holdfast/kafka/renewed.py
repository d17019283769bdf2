"""Certificates, keys and lists of whom to trust are renewed on disk while a process lives, every few months or hours.
Clients read such files once, when they are made. Who keeps one over batches makes it anew when its files have changed.
While they cannot be used, as when a certificate is renewed already and its key is not, or cannot be read yet, who has a
client goes on with it, and who has none asks again for some seconds.

Any thread may use it; a `Renewed` is used by one at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from time import sleep
from typing import Generic, TypeVar

from holdfast.errors import InvalidRequest

#: Options that name a file, or a folder, which clients read once.
FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
    "ssl.keystore.location",
    "https.ca.location",
)

T = TypeVar("T")
# So long a renewal that is half done may take: ten seconds.
_TRIES, _PAUSE_S = 20, 0.5

Stamps = tuple[tuple[int, ...] | None, ...]

_said: dict[tuple[str | None, ...], Stamps] = {}
_logger = logging.getLogger("holdfast.kafka")


def stamps(config: Mapping[str, str]) -> Stamps:
    """Other ones when a file has been written or replaced since, or another may read it; None is one that is not there.
    To be taken before the files are read: else what is written in between is never seen.
    """
    return tuple(_stamp(config[name]) for name in FILES if config.get(name))


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def once_usable(config: Mapping[str, str], make: Callable[[], T]) -> T:
    """What is made of a configuration's files by one who has nothing to go on with until they can be used, as a process
    that begins in the middle of a renewal, or a transaction. Waits for some seconds, where there are files.

    Raises
    ------
    InvalidRequest
        They still cannot be used, or it is something else that is refused.
    """
    for _ in range(_TRIES if stamps(config) else 0):
        try:
            return make()
        except InvalidRequest:
            sleep(_PAUSE_S)
    return make()


class Renewed(Generic[T]):
    """What is made of a configuration's files, and made anew when they have changed. While they cannot be used it stays
    what it was: who has a connection needs none.
    """

    def __init__(self, config: Mapping[str, str], make: Callable[[], T]) -> None:
        self._config = dict(config)
        self._make = make
        self._stamps = stamps(self._config)
        #: What was made last.
        self.made = make()

    def now(self) -> T:
        """The same as before, where the files are."""
        found = stamps(self._config)
        if found != self._stamps:
            try:
                self.made, self._stamps = self._make(), found
            except InvalidRequest as refusal:
                # Tried again at the next question: what was wrong may have been this process, and not the files.
                say_not_used(self._config, found, refusal)
        return self.made


def say_not_used(config: Mapping[str, str], found: Stamps, refusal: InvalidRequest) -> None:
    """Files have changed, and a client with the former ones goes on. Said once until they change again."""
    names = tuple(config.get(name) for name in FILES)
    if _said.get(names) == found:
        return
    _said[names] = found
    _logger.warning("The files of kafka.ssl.* have changed and cannot be used yet, those before are: %s", refusal)
