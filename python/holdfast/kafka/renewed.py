"""Certificates, keys and lists of whom to trust are renewed on disk while a process lives, every few months or hours.
Clients read such files once, when they are made. Who keeps one over batches makes it anew when its files have changed.

Any thread may use it; a `Renewed` is used by one at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
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
Stamps = tuple[tuple[int, int, int] | None, ...]

_logger = logging.getLogger("holdfast.kafka")


def stamps(config: Mapping[str, str]) -> Stamps:
    """Other ones when a file has been written or replaced since; None is one that is not there. To be taken before the
    files are read: else what is written in between is never seen.
    """
    return tuple(_stamp(config[name]) for name in FILES if config.get(name))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Renewed(Generic[T]):
    """What is made of a configuration's files, and made anew when they have changed.

    While they cannot be used, as when a certificate is renewed already and its key is not, it stays what it was: who
    has a connection needs none.
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
            self._stamps = found  # of files that cannot be used it is said once, and they are tried when they change
            try:
                self.made = self._make()
            except InvalidRequest as refusal:
                say_not_used(refusal)
        return self.made


def say_not_used(refusal: InvalidRequest) -> None:
    """Files have changed, and a client with the former ones goes on."""
    _logger.warning("The files of kafka.ssl.* have changed and cannot be used yet, those before are: %s", refusal)
