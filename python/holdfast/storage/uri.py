"""URIs of stores: which folder they name, and what is told those that name none.

A store is a folder that the driver and all executors reach under one path. Whatever else a URI may name is refused on
the driver, where the caller sees it, and not in a worker at the first batch.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidRequest

# Options of file systems that say where, not who. The values of all others are hidden.
_PUBLIC_OPTIONS = frozenset(
    {"region", "endpoint_override", "scheme", "replication", "buffer_size", "allow_bucket_creation"}
)
_HIDDEN = "***"
# With a slash any scheme; without one those that are known: s3a:bucket/x would be a folder of that name below the
# working directory, where with:colon is meant.
_REMOTE = "s3[an]?|gs|gcs|wasbs?|abfss?|adl|az|hdfs|s?webhdfs|viewfs|dbfs|oss|cosn?|obs|swift|o3?fs|maprfs|https?|ftp"
_SCHEME = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*(?=:/)|(?i:{_REMOTE})):")


def check_spelling(text: str) -> None:
    """Refuses what would become an oddly named folder below the working directory, here and for Spark.

    Raises
    ------
    InvalidRequest
        Empty, with blanks around it, or a path below a home folder or a variable that nobody expands.
    """
    if not text:
        raise InvalidRequest("the folder is empty text: expected a path, such as /mnt/shared/state")
    if text != text.strip():
        raise InvalidRequest(f"{text!r} has blanks around it: expected a path, such as {text.strip()!r}")
    if text.startswith("~"):
        raise InvalidRequest(
            f"{text!r} begins with '~', which Spark does not expand, and which is another folder on each machine: "
            f"expected an absolute path. On this machine it is {os.path.expanduser(text)}"
        )
    if text.startswith("$"):
        raise InvalidRequest(
            f"{text!r} begins with a variable, which Spark does not expand: expected an absolute path. On this "
            f"machine it is {os.path.expandvars(text)}"
        )


def local_path(text: str) -> str:
    """The absolute path of the folder that ``text`` names: a plain path, or ``file:///path``.

    Raises
    ------
    InvalidRequest
        See :func:`check_spelling`; or a URI of anything but a folder. Says what to write instead.
    """
    check_spelling(text)
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidRequest(f"{text!r} is not a file URI: expected file:///absolute/path")
        return os.path.normpath(unquote(parts.path))
    scheme = _SCHEME.match(text)
    if scheme is None:
        return os.path.abspath(text)
    if scheme.group(1).lower() == "dbfs":
        raise InvalidRequest(
            f"{shown(text)} is a path that only Spark's JVM understands: expected the folder where it is mounted, "
            f"{'/dbfs/' + text[len('dbfs:') :].strip('/')}"
        )
    raise InvalidRequest(
        f"{shown(text)} is of the scheme {scheme.group(1)!r}: expected a folder that the driver and all executors have "
        f"mounted under one path, such as /mnt/shared/state (a local disk for one machine; NFS, EFS, Filestore, Azure "
        f"Files, CephFS or the like for several). Object stores and HDFS are not supported yet"
    )


def shown(text: str) -> str:
    """A URI without its credentials: fit for logs and errors."""
    parts = urlsplit(text)
    _, at, host = parts.netloc.rpartition("@")
    hidden = f"{parts.scheme}:{'//' if '://' in text else ''}{_HIDDEN + '@' if at else ''}{host}{parts.path}"
    options = parse_qsl(parts.query, keep_blank_values=True)
    if options:
        hidden += "?" + "&".join(f"{name}={value if name in _PUBLIC_OPTIONS else _HIDDEN}" for name, value in options)
    return hidden
