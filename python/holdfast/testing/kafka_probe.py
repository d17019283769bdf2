"""Asks a broker whether it is ready, in its own protocol: ApiVersions, then Metadata. No Kafka client needed.

Kafka opens its port before it serves, and serves before it is registered; only a metadata answer that names the broker
says that clients can use it.
"""

from __future__ import annotations

import socket
import struct

_METADATA, _API_VERSIONS = 3, 18
_CLIENT_ID = b"holdfast-probe"


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether an ApiVersions round trip succeeds."""
    try:
        body = _ask(host, port, _API_VERSIONS, b"", timeout_s)
    except OSError:
        return False
    return len(body) >= 2 and struct.unpack_from(">h", body)[0] == 0


def known_brokers(host: str, port: int, timeout_s: float = 1.0) -> set[int]:
    """Node ids in the broker's metadata; empty while it does not answer."""
    try:
        body = _ask(host, port, _METADATA, struct.pack(">i", 0), timeout_s)
    except OSError:
        return set()
    (count,) = struct.unpack_from(">i", body)
    position, nodes = 4, set()
    for _ in range(count):
        node, host_size = struct.unpack_from(">ih", body, position)
        nodes.add(node)
        position += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", body, position)
        position += 2 + max(rack_size, 0)
    return nodes


def _ask(host: str, port: int, api_key: int, request: bytes, timeout_s: float) -> bytes:
    """One request with header version 1 (ApiVersions 0, Metadata 1), the body of its answer; or OSError."""
    version = 0 if api_key == _API_VERSIONS else 1
    frame = struct.pack(">hhih", api_key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + request
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        answer = _receive(connection, size)
    return answer[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed before the whole answer came")
        received += part
    return bytes(received)
