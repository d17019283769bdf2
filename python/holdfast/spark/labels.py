"""Slot labels: the long that a slot's rows are grouped by,
chosen so that the slots spread evenly over the shuffle partitions.

Spark sends a group to partition ``pmod(hash(label), P)``, where ``hash`` is Murmur3 (x86, 32 bits, seed 42) of the
long's two halves. Only balance depends on this: with other labels or another P the results are the same. P is fixed
at a query's first batch, but Spark can repartition a checkpoint (docs/rfcs/0015): so the labels suit other P too.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_SPARK_SEED = 42
_CANDIDATES = 1 << 16
#: Some times as many candidates are hashed until all labels are found: some tens of milliseconds.
_MODULUS_MAX = 1 << 16


def spark_hash(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Spark's ``hash`` of longs. Algorithm: Austin Appleby's MurmurHash3_x86_32 over two 32-bit blocks."""
    words = values.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = np.full(len(words), _SPARK_SEED, np.uint32)
        for block in (words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)):
            k = block.astype(np.uint32) * np.uint32(0xCC9E2D51)
            k = _rotate_left(k, 15) * np.uint32(0x1B873593)
            mixed = _rotate_left(mixed ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        mixed ^= np.uint32(8)  # the length in bytes
        mixed ^= mixed >> np.uint32(16)
        mixed *= np.uint32(0x85EBCA6B)
        mixed ^= mixed >> np.uint32(13)
        mixed *= np.uint32(0xC2B2AE35)
        mixed ^= mixed >> np.uint32(16)
    return mixed.view(np.int32)


def spread_labels(slots: int, partitions: int) -> tuple[int, ...]:
    """One label for each slot: slot ``s`` goes to shuffle partition ``s % partitions``.

    Also, if Spark repartitions the checkpoint, to ``s % p`` of ``p`` partitions, where ``p`` divides the modulus that
    labels are found by: all numbers up to the slots', as far as their common multiple stays small enough.
    """
    modulus = _modulus(slots, partitions)
    wanted = {residue: list(range(residue, slots, modulus))[::-1] for residue in range(min(slots, modulus))}
    waiting = np.arange(len(wanted), dtype=np.int64)
    labels = [0] * slots
    start = 0
    while len(waiting):
        candidates = np.arange(start, start + _CANDIDATES, dtype=np.int64)
        residues = np.mod(spark_hash(candidates), modulus)
        found = np.isin(residues, waiting)
        for label, residue in zip(candidates[found].tolist(), residues[found].tolist()):
            if wanted[residue]:
                labels[wanted[residue].pop()] = label
        waiting = np.array([residue for residue in waiting.tolist() if wanted[residue]], np.int64)
        start += _CANDIDATES
    return tuple(labels)


def _modulus(slots: int, partitions: int) -> int:
    """A multiple of ``partitions``, and of the numbers of partitions that the slots can make use of, as far as that
    fits: first those that are multiples of it.
    """
    modulus = partitions
    for other in (*range(partitions, slots + 1, partitions), *range(2, slots + 1)):
        if (both := math.lcm(modulus, other)) <= _MODULUS_MAX:
            modulus = both
    return modulus


def _rotate_left(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    rotated: NDArray[np.uint32] = (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
    return rotated
