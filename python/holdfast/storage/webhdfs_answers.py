"""What WebHDFS's refusals mean: try again, or tell the caller."""

from __future__ import annotations

import re

import requests

from holdfast.storage.webhdfs import WebHdfsError, without_secrets

# Java's names. What is not among them is tried again: a NameNode that starts, a DataNode that is away, too few of them.
_MISSING = frozenset({"FileNotFoundException"})
_REFUSED = frozenset({"AccessControlException", "SecurityException", "AuthorizationException", "InvalidToken"})
_NO_ROOM = frozenset({"QuotaExceededException", "NSQuotaExceededException", "DSQuotaExceededException"})
_FULL_FOLDER = "MaxDirectoryItemsExceededException"
_NO_NAME = frozenset(
    {
        "InvalidPathException",
        "IllegalArgumentException",
        "UnsupportedOperationException",
        "PathIsNotEmptyDirectoryException",
        "PathComponentTooLongException",
        _FULL_FOLDER,
        "UnresolvedPathException",
    }
)
_TRY_AGAIN = frozenset({408, 425, 429})
_BELOW_A_FILE = re.compile(
    r"\(is not a directory\)|\(Ancestor \S+ is not a directory\)|: Parent path is not a directory"
)
_OF_URL = re.compile(r"(with url: [^\s?]*)\?\S*")
_CAUSE = re.compile(r"\(Caused by (.*)\)$")


def _is_below_a_file(error: WebHdfsError) -> bool:
    """Nothing can be there. HDFS says so by three exceptions, of which one may also mean that a name exists, and one
    that it is not for this user.
    """
    return error.exception == "ParentNotDirectoryException" or _BELOW_A_FILE.search(str(error)) is not None


class WebHdfsAnswers:
    """For Patience."""

    errors: tuple[type[Exception], ...] = (WebHdfsError, requests.RequestException)

    def told(self, error: BaseException) -> str:
        """requests puts the whole URL into its errors: only the cause behind it is told."""
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        cause = _CAUSE.search(text)
        return without_secrets(_OF_URL.sub(r"\1", cause.group(1) if cause else text))[:500]

    def is_missing(self, error: BaseException) -> bool:
        """That a server knows no such page is another thing: it is no NameNode."""
        if not isinstance(error, WebHdfsError) or error.status not in (403, 404):
            return False
        return error.exception in _MISSING or _is_below_a_file(error)

    def is_final(self, error: BaseException) -> bool:
        if isinstance(error, requests.RequestException):
            # A certificate that is not trusted, and a URL that is none, stay so.
            return isinstance(error, (requests.exceptions.SSLError, requests.exceptions.InvalidURL))
        if not isinstance(error, WebHdfsError) or error.is_of_standby():
            return False
        if _is_below_a_file(error):
            return True
        if error.exception:
            return error.exception in _MISSING | _REFUSED | _NO_ROOM | _NO_NAME or error.status == 401
        return error.status < 500 and error.status not in _TRY_AGAIN

    def way_out(self, error: BaseException) -> str:
        if not isinstance(error, WebHdfsError):
            return (
                "see whether spark.holdfast.storage.endpoint has the HTTP addresses of the NameNodes, such as "
                "http://nn1:9870;http://nn2:9870, and whether they and the DataNodes are reached from this machine"
            )
        if error.status == 401 or error.exception == "InvalidToken":
            return (
                "this cluster asks for Kerberos or a valid delegation token: give a token by "
                "HOLDFAST_WEBHDFS_TOKEN_FILE (docs/guide/storage.md)"
            )
        if error.exception in _REFUSED:
            return "give this user, whom HADOOP_USER_NAME can name, the right to read, write, list and delete there"
        if _is_below_a_file(error):
            return "expected a folder, found a file: name another place, or delete the file"
        if error.exception == _FULL_FOLDER:
            return (
                "the folder has as many files as dfs.namenode.fs-limits.max-directory-items allows, a million by "
                "default: raise that, or begin a new folder (docs/guide/storage.md)"
            )
        if error.exception in _NO_ROOM:
            return "raise the folder's quota, or free some of it"
        if error.exception == "SafeModeException":
            return "the NameNode is in safe mode: see hdfs dfsadmin -safemode get"
        if not error.exception:
            return (
                "this is not the WebHDFS of a NameNode: set spark.holdfast.storage.endpoint to its HTTP address, such "
                "as http://nn1:9870 (HttpFS is not supported)"
            )
        return "see the NameNode's log, and whether enough DataNodes are alive"
