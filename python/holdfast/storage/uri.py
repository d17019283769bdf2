"""URIs of stores: what they name, and how they are shown without their credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidRequest

# Options of pyarrow's filesystems that say where, not who. The values of all others are hidden.
_PUBLIC_OPTIONS = frozenset(
    {"region", "endpoint_override", "scheme", "replication", "buffer_size", "allow_bucket_creation"}
)
_HIDDEN = "***"


@dataclass(frozen=True)
class StoreUri:
    """A parsed URI. ``path``: the local folder, for a local one. ``shown``: fit for logs and errors."""

    text: str
    path: str | None
    shown: str
    secrets: tuple[str, ...]

    def redact(self, message: str) -> str:
        """``message`` without this URI's credentials, in any spelling that the URI gave them."""
        message = message.replace(self.text, self.shown)
        for secret in self.secrets:
            message = message.replace(secret, _HIDDEN)
        return message


def parse_uri(text: str) -> StoreUri:
    """A plain path, ``file:///path``, or any URI that ``pyarrow.fs.FileSystem.from_uri`` takes.

    Raises
    ------
    InvalidRequest
        Empty, or a file URI with a host or without an absolute path.
    """
    if not text:
        raise InvalidRequest("the checkpoint folder is empty text: expected a path or a URI such as s3://bucket/folder")
    if "://" not in text and not text.startswith("file:"):
        path = os.path.abspath(text)
        return StoreUri(text, path, path, ())
    parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidRequest(f"{text!r} is not a file URI: expected file:///absolute/path")
        path = os.path.normpath(unquote(parts.path))
        return StoreUri(text, path, f"file://{path}", ())
    user, at, host = parts.netloc.rpartition("@")
    options = parse_qsl(parts.query, keep_blank_values=True)
    hidden = [value for name, value in options if name not in _PUBLIC_OPTIONS]
    shown = f"{parts.scheme}://{_HIDDEN + '@' if at else ''}{host}{parts.path}"
    if options:
        shown += "?" + "&".join(f"{name}={value if name in _PUBLIC_OPTIONS else _HIDDEN}" for name, value in options)
    spellings = {user, *user.split(":"), *hidden}
    spellings |= {unquote(spelling) for spelling in spellings}
    # Longest first, so that no secret is left in pieces; a very short one would blot out ordinary words.
    secrets = sorted((s for s in spellings if len(s) >= 3), key=len, reverse=True)
    return StoreUri(text, None, shown, tuple(secrets))
