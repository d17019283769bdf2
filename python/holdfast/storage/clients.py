"""The client of an object store: obstore's, for S3, Google Cloud Storage and Azure. Only here options become its own.

Credentials are obstore's business: it looks into the environment and asks the machine's role, in each process anew. A
client is built once for a place and its options, since it holds connections; it does not survive a fork of the process.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from holdfast.errors import InvalidRequest
from holdfast.storage.answers import told
from holdfast.storage.options import StorageOptions
from holdfast.storage.uri import Bucket

#: obstore's own retries, below ours: for the parts of an upload, of which we know nothing.
_RETRIES = 2
_CONNECT_MS = 5_000
#: Where the environment says that a store is.
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def client_of(bucket: Bucket, options: StorageOptions) -> ObjectStore:
    """A client of the store; nothing is asked yet.

    Raises
    ------
    InvalidRequest
        The environment or the options contradict themselves.
    """
    told_by_environment = (os.environ[name] for name in _ENDPOINTS[bucket.kind] if os.environ.get(name))
    endpoint = options.endpoint or next(told_by_environment, None)
    if endpoint and ";" in endpoint:
        raise InvalidRequest(
            f"{bucket.uri} has one endpoint, and spark.holdfast.storage.endpoint has several: those are HDFS's. Where "
            f"both are used, name the object store's by its environment (docs/guide/storage.md)"
        )
    common: dict[str, Any] = {
        "prefix": bucket.prefix or None,
        "client_options": {
            "timeout": timedelta(milliseconds=options.request_timeout_ms),
            "connect_timeout": timedelta(milliseconds=min(_CONNECT_MS, options.request_timeout_ms)),
            **({"allow_http": True} if endpoint and endpoint.startswith("http://") else {}),
        },
        "retry_config": {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(milliseconds=options.retry_max_ms),
            "backoff": {
                "init_backoff": timedelta(milliseconds=options.retry_backoff_ms),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    }
    try:
        if bucket.kind == "gs":
            return GCSStore(bucket.name, **common, **_given(base_url=endpoint))
        if bucket.kind == "az":
            given = _given(account_name=bucket.account, endpoint=endpoint)
            return AzureStore(bucket.name, **common, **given)
        hosted = options.virtual_hosted or None
        given = _given(endpoint=endpoint, region=options.region, virtual_hosted_style_request=hosted)
        # A copy that replaces nothing: S3 has it for uploads in parts, of which a copy can be one.
        return S3Store(bucket.name, copy_if_not_exists="multipart", **common, **given)
    except (BaseError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"{bucket.uri} cannot be reached with these settings: {told(error)}. See spark.holdfast.storage.* and the "
            f"environment (docs/guide/storage.md)"
        ) from None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
