"""Locks one more release of Kafka in kafka_locks: ``python -m holdfast.testing.kafka_lock 4.3.1 2.25.4``.

Maven resolves Kafka's server and a log4j binding with all they need; what it finds is locked. Look at the difference
before you commit it, and run the broker's tests.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from holdfast.testing.kafka_jars import COPY_GOAL, LOCKS, Jar, run_maven

_LISTED = re.compile(r"([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)")
LIST_GOAL = COPY_GOAL.replace("copy-dependencies", "list")


def write_lock(kafka_version: str, log4j_version: str) -> None:
    """Resolve, hash, write."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lock-") as work:
        pom = Path(work, "pom.xml")
        pom.write_text(_POM.format(kafka=kafka_version, log4j=log4j_version))
        listing, folder = Path(work, "list.txt"), Path(work, "jars")
        run_maven(["-f", str(pom), LIST_GOAL, f"-DoutputFile={listing}"])
        run_maven(["-f", str(pom), COPY_GOAL, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"])
        jars = [_locked(folder, *found) for found in sorted(_LISTED.findall(listing.read_text()))]
    (LOCKS / f"{kafka_version}.json").write_text(json.dumps({"kafka": kafka_version, "jars": jars}, indent=1) + "\n")


def _locked(folder: Path, group: str, artifact: str, version: str) -> dict[str, str | int]:
    jar = Jar(group, artifact, version, 0, "")
    content = (folder / jar.file_name).read_bytes()
    return asdict(Jar(group, artifact, version, len(content), hashlib.sha256(content).hexdigest()))


_POM = """\
<project><modelVersion>4.0.0</modelVersion><groupId>holdfast</groupId><artifactId>kafka-broker</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>{log4j}</version></dependency>
</dependencies></project>
"""


if __name__ == "__main__":
    write_lock(kafka_version=sys.argv[1], log4j_version=sys.argv[2])
