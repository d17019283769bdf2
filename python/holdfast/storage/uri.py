"""URIs of stores: which folder or bucket they name, and what is told those that name none.

A store is a place that the driver and all executors reach under one name: a folder, one of HDFS, or a prefix in a
bucket. Whatever else a URI may name is refused on the driver, where the caller sees it, and not in a worker at the
first batch.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from holdfast.errors import InvalidRequest

# Options of file systems that say where, not who. The values of all others are hidden.
_PUBLIC_OPTIONS = frozenset(
    {"region", "endpoint_override", "scheme", "replication", "buffer_size", "allow_bucket_creation"}
)
_PUBLIC_VALUE = re.compile(r"[A-Za-z0-9_.:/-]*")
_HIDDEN = "***"
#: How a URI begins, its scheme, all that follows, and of that what stands before a path.
_PARTS = re.compile(r"(\s*([^:]*):/*)(([^/?#]*).*)", re.DOTALL)
# With a slash any scheme; without one those that are known: s3a:bucket/x would be a folder of that name below the
# working directory, where with:colon is meant.
_REMOTE = "s3[an]?|gs|gcs|wasbs?|abfss?|adl|az|hdfs|s?webhdfs|viewfs|dbfs|oss|cosn?|obs|swift|o3?fs|maprfs|https?|ftp"
_SCHEME = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*(?=:/)|(?i:{_REMOTE})):")
#: Schemes of object stores, and what each is kept by. Spark's names are among them: s3a, abfs, abfss.
_KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ACCOUNT = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net")
#: Schemes of HDFS: of the WebHDFS behind each, the scheme, and the port where the URI or its endpoint tells none.
_HDFS = {"hdfs": ("http", 9870), "webhdfs": ("http", 9870), "swebhdfs": ("https", 9871)}
#: Of hdfs://, where Hadoop's own clients ask. It is not WebHDFS's, so one URI with it and one without are one place.
_HDFS_PORT = 8020
_HDFS_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_HDFS_EXAMPLES = "hdfs://namenode:8020/folder, webhdfs://namenode:9870/folder or swebhdfs://namenode:9871/folder"
#: What is escaped in a URI.
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_EXAMPLES = "s3://bucket/folder, gs://bucket/folder, az://container/folder or abfss://container@account.dfs.core.windows.net/folder"


@dataclass(frozen=True)
class Bucket:
    """A prefix in a bucket. ``kind``: "s3", "gs" or "az"; ``account``: Azure's, where the URI names it."""

    kind: str
    name: str
    prefix: str
    account: str | None = None

    @property
    def uri(self) -> str:
        """One spelling for each place, and nothing secret in it."""
        root = f"{self.kind}://{self.name}"
        if self.account is not None:
            root = f"abfss://{self.name}@{self.account}.dfs.core.windows.net"
        return f"{root}/{self.prefix}" if self.prefix else root


@dataclass(frozen=True)
class HdfsFolder:
    """A folder of HDFS. ``host``: of a NameNode, or the name of several; ``port``: as it was told, also where it is the
    one that the scheme has by default, since a port that is told makes an address of the URI; of hdfs:// another one.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def uri(self) -> str:
        """One spelling for each place, as far as schemes and aliases of hosts let it be one."""
        return f"{self.scheme}://{self.host}{f':{self.port}' if self.port else ''}/{self.path}".rstrip("/")

    def found_by(self, endpoint: str | None) -> HdfsFolder:
        """The folder under the name that its store has. Where no endpoint says where WebHDFS is, that tells the port:
        so it is one name, and is the same place to whoever opens it with an endpoint.
        """
        if endpoint is not None or self.scheme == "hdfs":
            return self
        return replace(self, port=self.port or _HDFS[self.scheme][1])

    def addresses(self, endpoint: str | None) -> tuple[str, ...]:
        """Of the WebHDFS of its NameNodes: the endpoint's, unless the URI itself tells the port of one.

        Raises
        ------
        InvalidRequest
            The endpoint is without the encryption that the scheme asks for.
        """
        scheme, port = _HDFS[self.scheme]
        if endpoint is None or (self.port is not None and self.scheme != "hdfs"):
            return (f"{scheme}://{self.host}:{port if self.scheme == 'hdfs' else self.port or port}",)
        addresses = tuple(address.rstrip("/") for address in endpoint.split(";"))
        if scheme == "https" and not all(address.startswith("https://") for address in addresses):
            raise InvalidRequest(
                f"{self.uri} asks for encryption, and spark.holdfast.storage.endpoint is {endpoint!r}: expected "
                f"https://host:port, or a URI with hdfs://"
            )
        return addresses


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
        raise InvalidRequest(f"{shown(text)!r} has blanks around it: expected a path, such as {shown(text.strip())!r}")
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


def store_uri(text: str) -> str:
    """The one name of the place that ``text`` names: an absolute path, or the URI of a store elsewhere.

    Raises
    ------
    InvalidRequest
        See :func:`check_spelling`; or neither a folder nor a prefix in a bucket. Says what to write instead.
    """
    elsewhere = bucket_of(text) or hdfs_of(text)
    return local_path(text) if elsewhere is None else elsewhere.uri


def bucket_of(text: str) -> Bucket | None:
    """The prefix in a bucket that ``text`` names; None where its scheme is not an object store's.

    Raises
    ------
    InvalidRequest
        It is an object store's, and not spelled as one.
    """
    check_spelling(text)
    scheme, found, rest = text.partition("://")
    kind = _KINDS.get(scheme) if found else None
    if kind is None:
        return None
    if "?" in rest or "#" in rest:
        raise InvalidRequest(
            f"{shown(text)} has options in it: expected {_EXAMPLES}. What an object store needs to know beside its name"
            f" stands in spark.holdfast.storage.* and in the environment (docs/guide/storage.md)"
        )
    host, _, path = rest.partition("/")
    name, at, machine = host.rpartition("@") if "@" in host else (host, "", "")
    account = None
    if at:
        known = _ACCOUNT.fullmatch(machine) if scheme in ("abfs", "abfss") and ":" not in name else None
        if known is None:
            raise InvalidRequest(
                f"{shown(text)}: expected {_EXAMPLES}. Who asks is never told in a URI, which stands in plans and logs:"
                f" give credentials by the environment or the machine's role; and the host of an Azure cloud of its "
                f"own as spark.holdfast.storage.endpoint (docs/guide/storage.md)"
            )
        account = known.group(1)
    if not _BUCKET.fullmatch(name):
        raise InvalidRequest(f"{shown(text)} names no bucket: expected {_EXAMPLES}")
    return Bucket(kind, name, _checked_path(text, path, _EXAMPLES), account)


def hdfs_of(text: str) -> HdfsFolder | None:
    """The folder of HDFS that ``text`` names; None where its scheme is another's.

    Raises
    ------
    InvalidRequest
        It is HDFS's, and not spelled as a folder of it.
    """
    check_spelling(text)
    scheme, found, rest = text.partition("://")
    if not found or scheme not in _HDFS:
        return None
    host, _, path = rest.partition("/")
    if "@" in host or "?" in rest or "#" in rest:
        raise InvalidRequest(
            f"{shown(text)} has a user or options in it: expected {_HDFS_EXAMPLES}. Who asks is told by "
            f"HADOOP_USER_NAME or by a delegation token (docs/guide/storage.md)"
        )
    known = _HDFS_HOST.fullmatch(host)
    if known is None or int(known.group(2) or 1) not in range(1, 65_536):
        raise InvalidRequest(f"{shown(text)} names no NameNode: expected {_HDFS_EXAMPLES}")
    folder = _checked_path(text, path, _HDFS_EXAMPLES)
    if ":" in folder:
        raise InvalidRequest(f"{shown(text)} has a ':' in its path, which HDFS takes in no name")
    port = int(known.group(2)) if known.group(2) else None
    return HdfsFolder(scheme, known.group(1).lower(), None if (scheme, port) == ("hdfs", _HDFS_PORT) else port, folder)


def _checked_path(text: str, path: str, examples: str) -> str:
    found = path.rstrip("/")
    if any(part in ("", ".", "..") or not part.isprintable() for part in found.split("/") if found):
        raise InvalidRequest(
            f"{shown(text)}: expected parts separated by single '/', none of them '.' or '..', as in {examples}"
        )
    return found


def local_path(text: str) -> str:
    """The absolute path of the folder that ``text`` names: a plain path, or ``file:///path``.

    Raises
    ------
    InvalidRequest
        See :func:`check_spelling`; or a URI of anything but a folder. Says what to write instead.
    """
    check_spelling(text)
    if text.startswith("file:"):
        return _path_of_uri(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _one_spelling(os.path.abspath(text))
    if scheme.group(1).lower() == "dbfs":
        raise InvalidRequest(
            f"{shown(text)} is a path that only Spark's JVM understands: expected the folder where it is mounted, "
            f"{'/dbfs/' + shown(text)[len('dbfs:') :].strip('/')}"
        )
    raise InvalidRequest(
        f"{shown(text)} is of the scheme {scheme.group(1)!r}: expected a folder, such as /mnt/shared/state, which the "
        f"driver and all executors reach under one path (a local disk for one machine; NFS, CephFS or the like for "
        f"several); or, where files are kept and not local copies, HDFS or an object store: {_HDFS_EXAMPLES}; "
        f"{_EXAMPLES}"
    )


def _path_of_uri(text: str) -> str:
    """Of ``file:///path``. What a URI has beside a path is refused: it was a part of the folder's name perhaps."""
    rest = text.removeprefix("file:")
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    path = slash + path
    if host not in ("", "localhost") or not path.startswith("/"):
        raise InvalidRequest(f"{shown(text)!r} is not a file URI: expected file:///absolute/path")
    found = _one_spelling(os.path.normpath(unquote(path, errors="surrogateescape")))
    if "?" in path or "#" in path or not found.isprintable():
        raise InvalidRequest(
            f"{shown(text)!r} has '?', '#' or a character that cannot be printed in it: expected the plain path, where "
            f"these are characters like others, {found!r}"
        )
    return found


def _one_spelling(path: str) -> str:
    """Two slashes at the beginning are one for Linux, and stand before a host in a URI that is made of the path."""
    return f"/{path.lstrip('/')}"


def check_checkpoint_name(text: str) -> None:
    """Refuses names of a checkpoint that are one folder for Holdfast and another for Spark: Hadoop takes the path of a
    URI as it stands. No other name is told to Spark in its place: a query would begin anew in another folder.

    Raises
    ------
    InvalidRequest
        See :func:`check_spelling`; or a URI of a local folder with an escape in it, or with what :func:`local_path`
        refuses.
    """
    check_spelling(text)
    if not text.startswith("file:"):
        return
    decoded, escape = local_path(text), _ESCAPE.search(text)
    if escape is not None:
        as_it_stands = _one_spelling(re.sub("^file:(//[^/]*)?", "", text))
        raise InvalidRequest(
            f"{shown(text)!r} has {escape.group()!r} in it, which Spark does not decode: expected the checkpoint's "
            f"plain path, {decoded!r}, or {as_it_stands!r}, if that is where Spark has it"
        )


def shown(text: str) -> str:
    """A URI without its credentials: fit for logs and errors. A path stays what it is.

    Secrets of S3 have slashes in them: where no place of files can stand before the first one, all up to the last '@'
    is hidden, and with it what comes before an '@' in a path.
    """
    parts = _PARTS.fullmatch(text) if _SCHEME.match(text.lstrip()) else None
    if parts is None:
        return text
    begin, scheme, rest, host = parts.groups()
    if "@" in rest and re.search("[:@]", host) and not _is_place(scheme.lower(), host):
        rest = f"{_HIDDEN}@{rest.rpartition('@')[2]}"
    place, has_options, options = rest.partition("#")[0].partition("?")
    return f"{begin}{place}{has_options}{'&'.join(map(_shown_option, options.split('&')))}"


def _is_place(scheme: str, host: str) -> bool:
    """Whether there is nothing secret in what stands before a path, though it has a ':' or an '@'."""
    if scheme in _HDFS:
        return _HDFS_HOST.fullmatch(host) is not None
    container, _, machine = host.rpartition("@")
    return scheme in ("abfs", "abfss") and ":" not in container and _ACCOUNT.fullmatch(machine) is not None


def _shown_option(option: str) -> str:
    name, has_value, value = option.partition("=")
    if not has_value:
        return _HIDDEN if option else ""
    is_public = name in _PUBLIC_OPTIONS and _PUBLIC_VALUE.fullmatch(value)
    return f"{name}={value if is_public else _HIDDEN}"
