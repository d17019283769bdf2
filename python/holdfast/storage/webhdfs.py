"""WebHDFS, HDFS's interface over HTTP: one method for one of its operations, asked once of each NameNode in turn.

Bytes go and come by a second request, to a DataNode that the NameNode names in a redirect. Who asks stands in the query
of each URL, where there is a token as a secret, and the redirect repeats it. So no error here has a URL in it, and what
urllib3 tells its log of URLs is filtered.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.storage.options import StorageOptions

#: Names a file that has a delegation token, as GETDELEGATIONTOKEN gives its ``urlString``. Read anew for each request.
TOKEN_VARIABLE = "HOLDFAST_WEBHDFS_TOKEN_FILE"
_TOKEN = re.compile(r"[A-Za-z0-9_=+/-]{16,4096}")
_SECRET = re.compile(r"(?i)(delegation=)[^&\s'\")]+")
_CONNECT_MS = 5_000
_CONNECTIONS_MAX = 64
_REDIRECT = 307
#: Closed blocks are synced to the DataNodes' disks: by HDFS's own default they would be in their memory only.
_CREATE = {"overwrite": "false", "createflag": "CREATE,SYNC_BLOCK"}


class WebHdfsError(Exception):
    """An answer that is a refusal. ``exception``: the name of Java's, "" where the answer is not WebHDFS's."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(f"{status} {exception}: {message}".replace(" : ", ": "))
        self.status, self.exception = status, exception

    def is_of_standby(self) -> bool:
        """Whether another NameNode is to be asked. One that cannot judge a token yet wraps it into something else."""
        return self.exception == "StandbyException" or "StandbyException" in str(self)


@dataclass(frozen=True)
class FileStatus:
    """What a NameNode knows of a file or folder. ``file_id`` is never given twice, and stays through a rename."""

    suffix: str  # its name in the folder that was listed; "" where it was asked for itself
    is_file: bool
    size_bytes: int
    modified_ms: int
    file_id: int


class WebHdfs:
    """A client of one file system. May be used from any thread; it does not survive a fork of the process.

    Parameters
    ----------
    addresses
        Of its NameNodes, ``http://host:port``, in the order in which they are tried.
    """

    def __init__(self, addresses: tuple[str, ...], options: StorageOptions) -> None:
        self._addresses = addresses
        self._last = 0  # the one that answered last; a race of two threads costs one question more
        timeout_s = options.request_timeout_ms / 1000
        self._timeout_s = (min(_CONNECT_MS / 1000, timeout_s), timeout_s)
        self._session = requests.Session()
        self._session.headers["Accept-Encoding"] = "identity"  # lengths are compared
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS_MAX))

    def status(self, path: str) -> FileStatus:
        return _file_status(_json(self._ask("GET", path, "GETFILESTATUS"), "FileStatus"))

    def statuses(self, path: str) -> list[FileStatus]:
        """What is in a folder; of a file, itself."""
        listed = _json(self._ask("GET", path, "LISTSTATUS"), "FileStatuses")
        entries = listed.get("FileStatus") if isinstance(listed, dict) else None
        if not isinstance(entries, list):
            raise WebHdfsError(200, "", "a listing without files")
        return [_file_status(entry) for entry in entries]

    def create(self, path: str, body: Any) -> None:
        """Writes a new file and the folders above it. ``body``: bytes, an open file, or pieces, which are used up."""
        redirect = self._ask("PUT", path, "CREATE", **_CREATE)
        answer = self._session.put(
            _data_url(redirect), data=body, timeout=self._timeout_s, allow_redirects=False, stream=False
        )
        _check(answer, 201)

    def read(self, path: str, offset: int, size_bytes_max: int) -> bytes:
        """Bytes of a file, as far as it has them. ``offset`` lies within it."""
        redirect = self._ask("GET", path, "OPEN", offset=str(offset), length=str(size_bytes_max))
        answer = self._session.get(_data_url(redirect), timeout=self._timeout_s, allow_redirects=False)
        _check(answer, 200)
        told = answer.headers.get("Content-Length", "")
        if told != str(len(answer.content)) or len(answer.content) > size_bytes_max:
            raise requests.ConnectionError(f"{len(answer.content)} bytes came, and {told or 'no number'} was told")
        return answer.content

    def rename(self, path: str, target: str) -> None:
        """Refused where ``target`` exists. A server that does not heed the option may move it into a folder of that
        name; that is told as a refusal too, with 200: look what is there.
        """
        answer = self._ask("PUT", path, "RENAME", destination=target, renameoptions="NONE")
        if answer.content:
            raise WebHdfsError(200, "", "renameoptions were not heeded")

    def make_folder(self, path: str) -> None:
        """And those above it; one that is there is no error."""
        self._ask("PUT", path, "MKDIRS")

    def delete(self, path: str) -> None:
        """A file, or an empty folder; none is no error."""
        self._ask("DELETE", path, "DELETE", recursive="false")

    def _ask(self, method: str, path: str, operation: str, **options: str) -> requests.Response:
        """The answer of the first NameNode that is there and active."""
        query = urlencode({"op": operation, **options, **_who()})
        count, first = len(self._addresses), self._last
        for at in range(first, first + count):
            url = f"{self._addresses[at % count]}/webhdfs/v1{quote(path)}?{query}"
            try:
                answer = self._session.request(method, url, timeout=self._timeout_s, allow_redirects=False)
                _check(answer, _REDIRECT if operation in ("CREATE", "OPEN") else 200)
                return answer
            except (WebHdfsError, requests.RequestException) as error:
                if isinstance(error, WebHdfsError) and not error.is_of_standby():
                    raise
                self._last = (at + 1) % count
                if at == first + count - 1:
                    raise
        raise AssertionError("there is no address")


def without_secrets(text: str) -> str:
    """A text of a log or an error, where tokens are hidden."""
    return _SECRET.sub(r"\1***", text)


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if _SECRET.search(message):
            record.msg, record.args = without_secrets(message), None
        return True


for _name in ("urllib3.connectionpool", "urllib3.connection"):
    logging.getLogger(_name).addFilter(_WithoutSecrets())


def _who() -> dict[str, str]:
    """Who asks: the holder of a token, or a user by name, as Hadoop's own clients tell it."""
    path = os.environ.get(TOKEN_VARIABLE)
    if not path:
        try:
            return {"user.name": os.environ.get("HADOOP_USER_NAME") or getpass.getuser()}
        except (KeyError, OSError):
            raise InvalidRequest(
                "this process runs for a user without a name, and HDFS wants one: set HADOOP_USER_NAME"
            ) from None
    try:
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Unavailable(f"{path}, which {TOKEN_VARIABLE} names, cannot be read: {reason}") from None
    if not _TOKEN.fullmatch(token):
        raise Unavailable(
            f"{path}, which {TOKEN_VARIABLE} names, has no delegation token in it: expected the urlString that "
            "GETDELEGATIONTOKEN gives, as text on one line (docs/guide/storage.md)"
        )
    return {"delegation": token}


def _check(answer: requests.Response, expected: int) -> None:
    if answer.status_code == expected:
        return
    try:
        told = answer.json()["RemoteException"]
        exception, message = str(told["exception"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        exception, message = "", str(answer.reason)
    lines = message.strip().splitlines() or [""]
    raise WebHdfsError(answer.status_code, exception, without_secrets(lines[0][:300]))


def _data_url(redirect: requests.Response) -> str:
    """Where the bytes are: never by a connection that is less safe than the NameNode's."""
    url = urljoin(redirect.url, redirect.headers.get("Location", ""))
    if url == redirect.url or urlsplit(url).scheme not in ("https", urlsplit(redirect.url).scheme):
        raise WebHdfsError(_REDIRECT, "", "a redirect to no DataNode, or from https to http")
    return url


def _json(answer: requests.Response, name: str) -> Any:
    try:
        return answer.json()[name]
    except (ValueError, KeyError, TypeError):
        raise WebHdfsError(answer.status_code, "", f"an answer without {name}") from None


def _file_status(told: Any) -> FileStatus:
    """Nothing is taken unchecked: a suffix that climbs out of its folder would be another file's name."""
    try:
        status = FileStatus(
            str(told["pathSuffix"]),
            told["type"] == "FILE",
            int(told["length"]),
            int(told["modificationTime"]),
            int(told["fileId"]),
        )
    except (KeyError, TypeError, ValueError):
        raise WebHdfsError(
            200, "", "a file's status lacks pathSuffix, type, length, modificationTime or fileId, as HttpFS's does"
        ) from None
    if "/" in status.suffix or status.suffix in (".", "..") or status.file_id <= 0:
        raise WebHdfsError(200, "", f"a file's status with the name {status.suffix!r}, the id {status.file_id}")
    return status
