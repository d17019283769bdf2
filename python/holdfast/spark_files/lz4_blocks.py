"""The stream of blocks that Spark's lz4 codec writes: LZ4BlockOutputStream of lz4-java.

A block: the magic ``LZ4Block``, one byte (upper half: 1 stored, 2 compressed), then little-endian integers of 32 bits:
the length as it is stored, the length as it was, 28 bits of the content's XXH32 (seed 0x9747b28c). A block of length 0
ends the stream; another stream may follow. See net.jpountz.lz4.LZ4BlockInputStream.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from holdfast.errors import Corrupt

_MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBIII")
_STORED, _COMPRESSED = 0x10, 0x20
_BLOCK_BYTES_MAX = 1 << 25  # of lz4-java
_SEED, _MASK = 0x9747B28C, 0x0FFFFFFF
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_WORD = 0xFFFFFFFF


def decompress(data: bytes, where: str, bytes_max: int) -> bytes:
    """The content of a stream; Corrupt where it is none, or ends early, or has more than ``bytes_max`` bytes."""
    content = bytearray()
    at, ended = 0, True
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise _damaged(where, f"its last {len(data) - at} bytes are no block")
        magic, token, stored, length, checksum = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        method = token & 0xF0
        if magic != _MAGIC or method not in (_STORED, _COMPRESSED) or length > _BLOCK_BYTES_MAX:
            raise _damaged(where, f"no block begins at byte {at - _HEADER.size}")
        if stored > len(data) - at:
            raise _damaged(where, "it ends within a block")
        if len(content) + length > bytes_max:  # a few bytes can say that they are many
            raise _damaged(where, f"it has more than {bytes_max} bytes, more than handles of any query")
        ended = length == 0
        block = _content(data[at : at + stored], method, length, where)
        if length and xxh32(block) & _MASK != checksum:
            raise _damaged(where, f"the checksum of the block before byte {at + stored} is of other bytes")
        content += block
        at += stored
    if not ended or not data:
        raise _damaged(where, "it ends before its last block")
    return bytes(content)


def _content(block: bytes, method: int, length: int, where: str) -> bytes:
    if method == _STORED or not length:
        found = block
    else:
        try:
            found = pa.Codec("lz4_raw").decompress(block, length, asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(where, f"a block cannot be decompressed: {error}") from error
    if len(found) != length:
        raise _damaged(where, f"a block has {len(found)} bytes, expected {length}")
    return found


def xxh32(data: bytes, seed: int = _SEED) -> int:
    """XXH32 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md). Of some kilobytes at a time: it is slow."""
    at, length = 0, len(data)
    if length >= 16:
        lanes = [(seed + _P1 + _P2) & _WORD, (seed + _P2) & _WORD, seed, (seed - _P1) & _WORD]
        for at in range(0, length - 15, 16):
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = _rotated((lanes[lane] + word * _P2) & _WORD, 13) * _P1 & _WORD
        at += 16
        hashed = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & _WORD
    else:
        hashed = (seed + _P5) & _WORD
    hashed = (hashed + length) & _WORD
    while at + 4 <= length:
        hashed = _rotated((hashed + int.from_bytes(data[at : at + 4], "little") * _P3) & _WORD, 17) * _P4 & _WORD
        at += 4
    for byte in data[at:]:
        hashed = _rotated((hashed + byte * _P5) & _WORD, 11) * _P1 & _WORD
    hashed = (hashed ^ hashed >> 15) * _P2 & _WORD
    hashed = (hashed ^ hashed >> 13) * _P3 & _WORD
    return hashed ^ hashed >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD


def _damaged(where: str, what: str) -> Corrupt:
    return Corrupt(f"{where} is damaged: {what}; restore it from a backup, or read another batch")
