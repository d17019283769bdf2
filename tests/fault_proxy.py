"""A proxy before an HTTP server that fails on order: refuses, loses answers, cuts them short, hangs.

It also counts what is asked, as the server would bill it: one line of its `asked` is one request.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """What S3 or WebHDFS calls it, as far as tests ask."""
        if "op" in self.query:
            return self.query["op"][0].lower()
        if self.method == "GET" and ("list-type" in self.query or "prefix" in self.query):
            return "list"
        if self.method == "POST":
            return "delete" if "delete" in self.query else "complete" if "uploadId" in self.query else "begin upload"
        if self.method == "PUT":
            return "part" if "uploadId" in self.query else "put"
        return self.method.lower()


#: What becomes of a request: "pass"; "refuse" (503, the server never sees it); "conflict" (409, likewise); "forbid"
#: (403, likewise, with a page that repeats secrets); the name of one of Java's exceptions (403, likewise, as a NameNode
#: tells it); "lose" (done, no answer); "fail" (done, answered by 500); "cut"
#: (half of the answer's body); "hang" (no answer for some seconds, not done).
Rule = Callable[[Asked], str]
HANG_S = 3.0
_POLL_S = 0.01  # how often a proxy looks whether it shall end: each test waits for that
FORBIDDEN = (
    "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message>"
    "<AWSAccessKeyId>{key}</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256 {key}</StringToSign>"
    "<SignatureProvided>{signature}</SignatureProvided></Error>"
)


@dataclass
class FaultProxy:
    """``url``: where it listens. ``rule`` may be set at any time, and decides about each request."""

    url: str
    rule: Rule = lambda _: "pass"
    strip: frozenset[str] = frozenset()  # headers and options that the server shall not see, in small letters
    moved: dict[str, str] = field(default_factory=dict)  # of redirects: "host:port" → that of the proxy before it
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    hang_s: float = HANG_S  # of what hangs, unless it is let go before
    let_go: threading.Event = field(default_factory=threading.Event)

    def count(self, kind: str) -> int:
        with self.lock:
            return sum(one.kind == kind for one in self.asked)

    def first(self, number: int, fault: str, *kinds: str) -> None:
        """The first ``number`` requests of these kinds fail so."""
        left = [number]

        def rule(asked: Asked) -> str:
            with self.lock:
                if (kinds and asked.kind not in kinds) or left[0] <= 0:
                    return "pass"
                left[0] -= 1
                return fault

        self.rule = rule


class _Handler(BaseHTTPRequestHandler):
    """Of one connection. Proxies have classes of their own, which know ``proxy`` and ``target``, host and port."""

    protocol_version = "HTTP/1.1"
    proxy: FaultProxy
    target: str

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _do(self) -> None:
        parts = urlsplit(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        asked = Asked(self.command, unquote(parts.path), parse_qs(parts.query, keep_blank_values=True), headers)
        with self.proxy.lock:
            self.proxy.asked.append(asked)
        fault = self.proxy.rule(asked)
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if fault == "hang":
            self.proxy.let_go.wait(self.proxy.hang_s)
            self.close_connection = True
            return
        if fault.endswith("Exception"):
            told = {"exception": fault, "javaClassName": f"org.apache.hadoop.{fault}", "message": "as ordered"}
            self._answer(403, {"Content-Type": "application/json"}, json.dumps({"RemoteException": told}).encode())
            return
        if fault in ("refuse", "conflict", "forbid"):
            self._refuse(fault, headers)
            return
        status, answer_headers, answer = self._forward(headers, body)
        if fault == "lose":
            self.close_connection = True
            return
        if fault == "fail":
            self._answer(500, {}, b"<Error><Code>InternalError</Code><Message>lost</Message></Error>")
            return
        self._answer(status, answer_headers, answer, cut=fault == "cut")

    def _refuse(self, fault: str, headers: dict[str, str]) -> None:
        if fault == "refuse":
            self._answer(503, {}, b"<Error><Code>SlowDown</Code><Message>Please reduce</Message></Error>")
        elif fault == "conflict":
            code = b"<Error><Code>ConditionalRequestConflict</Code><Message>At once</Message></Error>"
            self._answer(409, {}, code)
        else:
            told = headers.get("authorization", "")
            page = FORBIDDEN.format(key=told.partition("Credential=")[2][:11], signature=told[-64:])
            self._answer(403, {}, page.encode())

    def _forward(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.target, timeout=300)
        try:
            sent = {k: v for k, v in headers.items() if k not in self.proxy.strip and k != "connection"}
            path, _, query = self.path.partition("?")
            options = [one for one in query.split("&") if one.partition("=")[0] not in self.proxy.strip]
            connection.request(self.command, f"{path}?{'&'.join(options)}" if query else path, body=body, headers=sent)
            response = connection.getresponse()
            kept = {k: v for k, v in response.getheaders() if k.lower() not in ("connection", "transfer-encoding")}
            if "Location" in kept:
                parts = urlsplit(kept["Location"])
                moved = self.proxy.moved.get(parts.netloc)
                kept["Location"] = parts._replace(netloc=moved).geturl() if moved else kept["Location"]
            return response.status, kept, response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        lengths = [value for key, value in headers.items() if key.lower() == "content-length"]
        for key, value in headers.items():
            if key.lower() != "content-length":
                self.send_header(key, value)
        self.send_header("Content-Length", lengths[0] if self.command == "HEAD" and lengths else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away is what some tests want


@contextmanager
def fault_proxy(server_url: str) -> Iterator[FaultProxy]:
    """Runs a proxy before a server."""

    class Handler(_Handler):
        target = urlsplit(server_url).netloc

    listening = _Server(("127.0.0.1", 0), Handler)
    proxy = Handler.proxy = FaultProxy(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
