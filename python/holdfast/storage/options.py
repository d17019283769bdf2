"""How an object store or HDFS is reached, and how long it is waited for: settings, never secrets.
Folders need none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast.errors import InvalidRequest


@dataclass(frozen=True)
class StorageOptions:
    """Where an object store or HDFS is, and the patience with it.

    Credentials are not among these: each process finds its own, in its environment or by the role of its machine.

    Attributes
    ----------
    endpoint
        URL of a store that is not its cloud's own; with ``http://``, the connection is not encrypted. None: the
        cloud's, or what the environment says. Of HDFS: the HTTP addresses of the NameNodes, separated by ``;``; None:
        port 9870 of the URI's host, 9871 of ``swebhdfs://``. A ``webhdfs://`` that tells its port goes by that.
    region
        Of an S3 bucket. None: what the environment says.
    virtual_hosted
        Whether an S3 endpoint has the bucket in its host's name.
    request_timeout_ms
        How long one request may take.
    retry_max_ms
        How long a request that fails is tried again, before it is Unavailable.
    retry_backoff_ms
        Pause before the first retry; each later one is twice as long, up to 10 s.
    """

    endpoint: str | None = None
    region: str | None = None
    virtual_hosted: bool = False
    request_timeout_ms: int = 30_000
    retry_max_ms: int = 60_000
    retry_backoff_ms: int = 100

    def __post_init__(self) -> None:
        if self.endpoint is None:
            return
        if "@" in self.endpoint or "?" in self.endpoint:
            raise InvalidRequest(
                "spark.holdfast.storage.endpoint has a user or options in it: expected https://host:port. Credentials "
                "come from the environment, or by the machine's role"
            )
        if not all(one.startswith(("http://", "https://")) for one in self.endpoint.split(";")):
            raise InvalidRequest(
                f"spark.holdfast.storage.endpoint is {self.endpoint!r}: expected a URL, https://host:port; or those of "
                f"HDFS's NameNodes, separated by ';'"
            )

    @classmethod
    def of(cls, settings: Any) -> StorageOptions:
        """Takes ``storage_endpoint`` and the other fields so named from any object."""
        return cls(**{f.name: getattr(settings, f"storage_{f.name}") for f in fields(cls)})
