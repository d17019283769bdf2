"""Several uploads or downloads at once; the first that fails stops the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


def run_parallel(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of ``jobs`` in their order, at most ``threads`` at once.

    When one raises, those that have not begun are cancelled, those that run are waited for, and the first error in the
    order of ``jobs`` is raised.
    """
    if threads <= 1 or len(jobs) <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(min(threads, len(jobs)), thread_name_prefix="holdfast-transfer") as executor:
        futures = [executor.submit(job) for job in jobs]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    for future in futures:
        if not future.cancelled() and future.exception() is not None:
            future.result()
    return [future.result() for future in futures]
