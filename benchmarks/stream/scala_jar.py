"""The Scala rival as a jar: compiled with the compiler that pyspark ships, against the very Spark that will run it.

    python -m benchmarks.stream.scala_jar

prints where it lies. A jar of the same source and the same Spark is not made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark
from benchmarks.figures import ROOT

SOURCE = ROOT / "benchmarks" / "stream" / "scala" / "KeyedSums.scala"
BUILT = ROOT / "build" / "benchmarks"


def scala_jar(folder: Path = BUILT) -> Path:
    """The jar, made if it is not there.

    Raises
    ------
    RuntimeError
        There is no JVM, or the source does not compile against this Spark.
    """
    identity = hashlib.sha256(SOURCE.read_bytes() + pyspark.__version__.encode()).hexdigest()[:16]
    jar = folder / f"keyed-sums-{identity}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _compile(Path(work))
            unfinished = Path(work) / jar.name
            with zipfile.ZipFile(unfinished, "w") as archive:
                for path in sorted((Path(work) / "classes").rglob("*.class")):
                    archive.write(path, str(path.relative_to(Path(work) / "classes")))
            os.replace(unfinished, jar)
    return jar


def _compile(work: Path) -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise RuntimeError("expected a JVM by JAVA_HOME or on the PATH, found none: install a JDK, 17 or newer")
    classes = work / "classes"
    classes.mkdir()
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    command = [java, "-Xss8m", "-cp", jars, "scala.tools.nsc.Main", "-usejavacp", "-nowarn", "-d", str(classes)]
    done = subprocess.run([*command, str(SOURCE)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{SOURCE} does not compile against Spark {pyspark.__version__}:\n{done.stdout}{done.stderr}"
        )


if __name__ == "__main__":
    print(scala_jar())
