"""How many examples hypothesis tries, as one factor of all: `HOLDFAST_EXAMPLES`. `make test-fast` takes a fifth, `make
nightly` ten times as many.

Long forms have numbers of their own.
"""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """For `max_examples`: at least one."""
    return max(1, round(count * float(os.environ.get("HOLDFAST_EXAMPLES", "1"))))
