"""``holdfast doctor``: what it finds, how it says what is not there, and its exit codes."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast.cli import main
from holdfast.doctor import Finding, Verdict, machine, packages, programs, versions
from holdfast.doctor.versions import Bounds
from holdfast.testing.kafka_jars import cached_folder, lock_of


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine, as one that has all."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _without_holdfast_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Spark starts for its workers, where nobody has said what, is then another Python than this one."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    bare = _program(tmp_path / "path" / "python3", "echo No module named holdfast >&2; exit 1")
    monkeypatch.setenv("PATH", f"{bare.parent}:{os.environ['PATH']}")


def _java(home: Path, version: str) -> dict[str, str]:
    _program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return {"JAVA_HOME": str(home)}


@pytest.mark.long
@pytest.mark.usefixtures("well")
def test_a_machine_that_has_all_is_well(tmp_path: Path) -> None:
    ran = _run("--local-dir", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    assert "missing" not in ran.output
    for name in ("Python", "Holdfast", "pyspark", "pyarrow", "JDK", "RocksDB", "memory", "cores", "local folder"):
        assert f" {name} " in ran.output
    assert "wrote a base and read it back" in ran.output
    assert "Holdfast has what it needs" in ran.output


def test_the_doctor_agrees_with_the_page_on_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "install.md").read_text(encoding="utf-8")
    least, newest = versions.dotted(packages.PYTHON_LEAST), versions.dotted(packages.PYTHON_NEWEST)
    assert f"| Python | {least} to {newest} |" in page
    spark = versions.dotted(versions.wanted()["pyspark"].least)
    assert f"| PySpark | {spark} to {versions.dotted(packages.PYSPARK_NEWEST)} |" in page
    assert f"| JDK | {programs.JDK_LEAST} or {programs.JDK_NEWEST}; newer ones" in page
    assert f"25 from PySpark {versions.dotted(programs.SPARK_OF_NEWER_JDKS)} on" in page
    assert "| operating system | Linux with glibc, x86-64 or aarch64 |" in page
    assert machine.MACHINES == ("x86_64", "aarch64")
    monkeypatch.setattr(packages, "PYTHON_NEWEST", (3, 9))
    assert packages.check_python().verdict == Verdict.WARNING
    assert "newer than what Holdfast was tried with, 3.9" in packages.check_python().found


@pytest.mark.parametrize(
    ("system", "library", "kind", "verdict"),
    [
        ("Linux", "glibc", "x86_64", Verdict.OK),
        ("Linux", "glibc", "riscv64", Verdict.WARNING),
        ("Linux", "", "x86_64", Verdict.MISSING),
        ("Darwin", "", "arm64", Verdict.MISSING),
    ],
)
def test_systems(monkeypatch: pytest.MonkeyPatch, system: str, library: str, kind: str, verdict: Verdict) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, "2.36" if library else ""))
    monkeypatch.setattr(platform, "machine", lambda: kind)
    assert machine.check_system().verdict == verdict


@pytest.mark.long
@pytest.mark.usefixtures("well")
def test_json_is_for_machines(tmp_path: Path) -> None:
    ran = _run("--json", "--local-dir", str(tmp_path / "not there yet"))
    report = json.loads(ran.output)
    assert report["missing"] == 0
    assert {finding["verdict"] for finding in report["findings"]} <= {"ok", "optional", "warning"}
    assert all(finding["found"] for finding in report["findings"])
    assert not (tmp_path / "not there yet").exists(), "the doctor changes nothing"


@pytest.mark.long
@pytest.mark.usefixtures("well")
def test_what_is_missing_is_said_with_its_mending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    _without_holdfast_on_the_path(monkeypatch, tmp_path)
    ran = _run()
    assert ran.exit_code == 1
    lines = ran.output.splitlines()
    missing = next(number for number, line in enumerate(lines) if line.startswith("missing"))
    assert "nowhere/bin/java" in lines[missing]
    assert "→ install a JDK 17" in lines[missing + 1]
    assert any(line.split()[:2] == ["warning", "workers"] for line in lines)
    assert "1 missing, " in lines[-1]


@pytest.mark.long
def test_warnings_alone_are_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _without_holdfast_on_the_path(monkeypatch, tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    ran = _run("--json", "--local-dir", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["warnings"] >= 1


def test_wrong_usage_is_neither() -> None:
    assert _run("--jason").exit_code == 2
    assert CliRunner().invoke(main, ["docter"]).exit_code == 2


@pytest.mark.long
def test_as_a_user_runs_it(tmp_path: Path) -> None:
    code = "from holdfast.cli import main; main()"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--local-dir", str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Holdfast has what it needs" in ran.stdout
    assert "\x1b" not in ran.stdout, "no colours into a pipe"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("17.0.15", Verdict.OK),
        ("21", Verdict.OK),
        ("25-ea", Verdict.OK),
        ("11.0.2", Verdict.MISSING),
        ("1.8.0_402", Verdict.MISSING),
    ],
)
def test_the_jdk_must_be_17_or_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(programs, "spark_version", lambda _: "4.3.0")
    finding = programs.check_jdk(_java(tmp_path / "jdk", version))
    assert finding.verdict == verdict
    assert version in finding.found


@pytest.mark.parametrize(
    ("version", "spark", "verdict"),
    [
        ("25.0.3", "4.0.1", Verdict.WARNING),
        ("24", "4.1.1", Verdict.WARNING),
        ("25.0.3", "4.2.0", Verdict.OK),
        ("21.0.2", "4.0.1", Verdict.OK),
        ("25.0.3", None, Verdict.OK),
    ],
)
def test_a_jdk_that_sparks_release_is_not_for_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, spark: str | None, verdict: Verdict
) -> None:
    """Spark 4.0 and 4.1 do not start on JDK 24 and later ("getSubject is not supported"): all was called well."""
    monkeypatch.setattr(programs, "spark_version", lambda _: spark)
    finding = programs.check_jdk(_java(tmp_path / "jdk", version))
    assert finding.verdict == verdict
    if verdict == Verdict.WARNING:
        assert f"{version} (" in finding.found and f"Spark {spark} is for JDK 17 and 21" in finding.found
        assert finding.mend.startswith("install a JDK 17 or 21")


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    environment = {**_java(tmp_path / "home", "17.0.1"), "PATH": str(tmp_path / "path" / "bin")}
    _java(tmp_path / "path", "11.0.2")
    assert "17.0.1" in programs.check_jdk(environment).found
    del environment["JAVA_HOME"]
    assert "11.0.2" in programs.check_jdk(environment).found


def test_no_jdk_at_all_is_missing(tmp_path: Path) -> None:
    finding = programs.check_jdk({"PATH": str(tmp_path)})
    assert (finding.verdict, finding.found) == (
        Verdict.MISSING,
        "none: JAVA_HOME is not set, and there is no java on PATH",
    )
    _program(tmp_path / "bin" / "java", "echo it is broken >&2; exit 3")
    assert "it is broken" in programs.check_jdk({"JAVA_HOME": str(tmp_path)}).found


def _with_package(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    monkeypatch.setattr(packages, "version_of", versions.get)
    monkeypatch.setattr(packages, "_importable_pyspark", lambda: None)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("4.0.0", Verdict.OK), ("4.3.0", Verdict.OK), ("3.5.6", Verdict.MISSING), ("5.0.0.dev1", Verdict.MISSING)],
)
def test_the_pyspark_that_is_supported(monkeypatch: pytest.MonkeyPatch, version: str, verdict: Verdict) -> None:
    _with_package(monkeypatch, pyspark=version)
    assert packages.check_pyspark({}).verdict == verdict


def test_no_pyspark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_package(monkeypatch)
    assert packages.check_pyspark({}).found == "not installed"
    _with_package(monkeypatch, **{"pyspark-client": "4.1.0"})
    finding = packages.check_pyspark({})
    assert finding.verdict == Verdict.MISSING
    assert "ships no Spark" in finding.found
    assert "pip install 'pyspark>=4.0,<5'" in finding.mend


def test_a_spark_home_of_another_version_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _spark_home(tmp_path, "4.1.0")
    _with_package(monkeypatch, pyspark="4.3.0")
    finding = packages.check_pyspark({"SPARK_HOME": str(tmp_path)})
    assert finding.verdict == Verdict.WARNING
    assert "Spark 4.1.0" in finding.found
    _with_package(monkeypatch, pyspark="4.1.0")
    assert packages.check_pyspark({"SPARK_HOME": str(tmp_path)}).verdict == Verdict.OK


def _spark_home(home: Path, version: str) -> dict[str, str]:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return {"SPARK_HOME": str(home)}


def test_a_pyspark_that_a_platform_brings_is_not_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The image apache/spark, EMR and Dataproc have it as a folder, of which pip knows nothing."""
    _with_package(monkeypatch)
    monkeypatch.setattr(packages, "_importable_pyspark", lambda: "4.0.1")
    assert packages.check_pyspark({}).verdict == Verdict.OK
    environment = _spark_home(tmp_path / "4.0", "4.0.1")
    finding = packages.check_pyspark(environment)
    assert finding.verdict == Verdict.OK
    assert finding.found.startswith("4.0.1, which pip does not know") and str(tmp_path / "4.0") in finding.found
    assert packages.spark_version(environment) == packages.spark_version({}) == "4.0.1"

    finding = packages.check_pyspark(_spark_home(tmp_path / "4.1", "4.1.1"))
    assert finding.verdict == Verdict.WARNING
    assert "but Python finds pyspark 4.0.1" in finding.found
    assert "pip install 'pyspark==4.1.1'" in finding.mend
    assert packages.check_pyspark(_spark_home(tmp_path / "3.5", "3.5.6")).verdict == Verdict.MISSING

    monkeypatch.setattr(packages, "_importable_pyspark", lambda: None)
    finding = packages.check_pyspark(environment)
    assert finding.verdict == Verdict.WARNING
    assert "only under spark-submit" in finding.found
    assert "pip install 'pyspark==4.0.1'" in finding.mend
    vendors = _spark_home(tmp_path / "vendors", "4.0.1-amzn-0")
    assert "pip install 'pyspark==4.0.1'" in packages.check_pyspark(vendors).mend
    _with_package(monkeypatch, pyspark="4.0.1")
    assert packages.check_pyspark(vendors).verdict == Verdict.OK, "what the doctor told to install"


def test_the_pyspark_of_this_python_is_found_where_pip_knows_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pyspark

    assert packages._importable_pyspark() == pyspark.__version__
    monkeypatch.delitem(sys.modules, "pyspark")
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "raise AssertionError('imported')\n")
        archive.writestr("pyspark/version.py", '__version__: str = "4.0.1"\n')
    monkeypatch.syspath_prepend(str(tmp_path / "pyspark.zip"))
    assert packages._importable_pyspark() == "4.0.1"


def test_a_package_that_is_too_old_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_package(monkeypatch, pyarrow="15.0.2")
    finding = packages.check_package("pyarrow")
    assert (finding.verdict, finding.mend) == (Verdict.MISSING, "pip install 'pyarrow>=18'")


def test_a_pandas_that_spark_warns_of_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_package(monkeypatch, pandas="3.1.0")
    finding = packages.check_package("pandas")
    assert (finding.verdict, finding.mend) == (Verdict.MISSING, "pip install 'pandas>=2.2,<3'")
    _with_package(monkeypatch, pandas="2.3.3")
    assert packages.check_package("pandas").verdict == Verdict.OK


def test_bounds_are_those_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = [
        "pyspark<5,>=4.0", "click>=8.1", "confluent-kafka>=2.6; extra == 'kafka'",
        'kafka-python (>=3.0.12,<4) ; extra == "kafka"', "holdfast-spark[kafka]; extra == 'demo'",
    ]  # fmt: skip
    monkeypatch.setattr(metadata, "requires", lambda _: requires)
    assert versions.wanted() == {"pyspark": Bounds((4, 0), (5,)), "click": Bounds((8, 1))}
    assert versions.wanted("kafka") == {"confluent-kafka": Bounds((2, 6)), "kafka-python": Bounds((3, 0, 12), (4,))}
    assert [bool(Bounds((2, 2), (3,)).hold(version)) for version in ("2.1.9", "2.2", "2.3.3", "3.0.0rc1")] == [
        False, True, True, False,
    ]  # fmt: skip


def _extra(name: str) -> Finding:
    return packages.check_extra(name, "Kafka sources and sinks")


def test_an_extra_is_optional_but_half_of_one_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_package(monkeypatch)
    finding = _extra("kafka")
    assert finding.verdict == Verdict.OPTIONAL
    assert "pip install 'holdfast-spark[kafka]'" in finding.mend
    _with_package(monkeypatch, **{"confluent-kafka": "2.11.0", "kafka-python": "3.0.12"})
    assert _extra("kafka").verdict == Verdict.OK
    _with_package(monkeypatch, **{"confluent-kafka": "2.11.0"})
    assert _extra("kafka").verdict == Verdict.WARNING
    assert "kafka-python is not installed" in _extra("kafka").found
    _with_package(monkeypatch, **{"confluent-kafka": "2.11.0", "kafka-python": "2.0.2"})
    assert "need kafka-python>=3.0.12" in _extra("kafka").found


def test_what_is_optional_is_neither_missing_nor_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("Python", Verdict.OK, "3.11"), Finding("Maven", Verdict.OPTIONAL, "no mvn on PATH", "install it")]
    # By its name in sys.modules: in holdfast.cli, `doctor` is the command.
    monkeypatch.setattr(importlib.import_module("holdfast.cli.doctor"), "examine", lambda _: found)
    ran = _run()
    assert ran.exit_code == 0
    assert "optional  Maven" in ran.output
    assert "→ install it" in ran.output
    assert ran.output.endswith("\nHoldfast has what it needs.\n")


def test_another_project_by_the_name_holdfast_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its distribution brings a package `holdfast` too: pip lays one over the other and says nothing."""
    ours = {"holdfast-spark": holdfast.__version__}
    _with_package(monkeypatch, **ours)
    assert packages.check_holdfast().verdict == Verdict.OK
    _with_package(monkeypatch, **ours, holdfast="0.5.1")
    finding = packages.check_holdfast()
    assert finding.verdict == Verdict.WARNING
    assert "holdfast 0.5.1, another project" in finding.found
    assert finding.mend.startswith("pip uninstall holdfast")


def test_a_holdfast_without_metadata_or_with_two_copies_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_package(monkeypatch)
    assert "without its metadata" in packages.check_holdfast().found
    _with_package(monkeypatch, **{"holdfast-spark": "0.0.9"})
    assert "another copy" in packages.check_holdfast().found


def test_maven_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE_DIR", str(tmp_path / "cache"))
    environment = {"PATH": str(tmp_path)}
    finding = programs.check_maven(environment)
    assert (finding.verdict, finding.mend[:13]) == (Verdict.OPTIONAL, "install Maven")
    (tmp_path / "cache" / "kafka-4.1.0-0123").mkdir(parents=True)
    assert programs.check_maven(environment).verdict == Verdict.OPTIONAL, "these are of another release"
    cached_folder(lock_of()).mkdir()
    assert programs.check_maven(environment).verdict == Verdict.OK
    _program(tmp_path / "mvn", "echo 'Apache Maven 3.8.7'")
    assert programs.check_maven(environment).found == f"3.8.7 ({tmp_path}/mvn)"
    _program(tmp_path / "mvn", "echo 'JAVA_HOME is not defined correctly' >&2; exit 1")
    finding = programs.check_maven(environment)
    assert finding.verdict == Verdict.WARNING
    assert "JAVA_HOME is not defined" in finding.found


@pytest.mark.long
def test_a_rocksdb_that_cannot_be_loaded_is_a_finding(tmp_path: Path) -> None:
    fake = tmp_path / "librocksdbjni-linux64.so"
    fake.write_bytes(b"not a library")
    finding = programs.check_rocksdb({**os.environ, "HOLDFAST_ROCKSDB_LIBRARY": str(fake)})
    assert finding.verdict == Verdict.MISSING
    assert "cannot be loaded" in finding.found
    finding = programs.check_rocksdb({**os.environ, "HOLDFAST_ROCKSDB_LIBRARY": str(tmp_path / "none.so")})
    assert "which is no file" in finding.found


def test_a_trial_that_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(_program(tmp_path / "python", "kill -SEGV $$")))
    finding = programs.check_rocksdb(os.environ)
    assert finding.verdict == Verdict.MISSING
    assert "ended by SIGSEGV" in finding.found


@pytest.mark.long
def test_workers_of_another_python_are_missing(tmp_path: Path) -> None:
    assert programs.check_workers({**os.environ, "PYSPARK_PYTHON": sys.executable}).verdict == Verdict.OK

    other = _program(tmp_path / "python", 'echo \'[[3, 9], "/usr/bin/python3.9", "/usr"]\'')
    finding = programs.check_workers({"PYSPARK_PYTHON": str(other)})
    assert finding.verdict == Verdict.MISSING
    assert "3.9 (/usr/bin/python3.9), but this is" in finding.found

    bare = _program(tmp_path / "bare", "echo \"ModuleNotFoundError: No module named 'holdfast'\" >&2; exit 1")
    finding = programs.check_workers({"PYSPARK_PYTHON": str(bare)})
    assert finding.verdict == Verdict.MISSING
    assert "cannot import holdfast: ModuleNotFoundError" in finding.found
    assert programs.check_workers({"PYSPARK_PYTHON": str(tmp_path / "none")}).verdict == Verdict.MISSING


@pytest.mark.long
def test_the_python_that_spark_would_start_is_tried_where_none_is_named(tmp_path: Path) -> None:
    """An environment that is activated was warned of as one that is not."""
    here = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = tmp_path / "bin"
    environment = {**here, "PATH": str(path)}
    finding = programs.check_workers(environment)
    assert finding.verdict == Verdict.WARNING
    assert "PYSPARK_PYTHON is not set, python3 of the path cannot be run" in finding.found

    _program(path / "python3", f'exec {sys.executable} "$@"')
    assert programs.check_workers(environment).verdict == Verdict.OK

    this = json.dumps(list(sys.version_info[:2]))
    for answer, told in [
        ("echo 'No module named holdfast' >&2; exit 1", "cannot import holdfast: No module named holdfast"),
        ('echo \'[[3, 9], "/usr/bin/python3", "/usr"]\'', "3.9 (/usr/bin/python3), but this is"),
        (f'echo \'[{this}, "/opt/other/bin/python3", "/opt/other"]\'', "of another environment than this one"),
    ]:
        _program(path / "python3", answer)
        finding = programs.check_workers(environment)
        assert (finding.verdict, finding.mend) == (Verdict.WARNING, f"export PYSPARK_PYTHON={sys.executable}")
        assert told in finding.found


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "found", "verdict"),
    [
        ({}, "16.0 GiB (the machine's)", Verdict.OK),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
            "16.0 GiB (the machine's)",
            Verdict.OK,
        ),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{4 << 30}\n"},
            "4.0 GiB (the container's limit)",
            Verdict.OK,
        ),
        (
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{1 << 30}\n"},
            "1.0 GiB (the container's limit)",
            Verdict.WARNING,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 << 30}\n",
            },
            "3.0 GiB (the container's limit)",
            Verdict.OK,
        ),
        (
            {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            "16.0 GiB (the machine's)",
            Verdict.OK,
        ),
    ],
)
def test_memory_is_the_least_of_machine_and_container(
    tmp_path: Path, files: dict[str, str], found: str, verdict: Verdict
) -> None:
    finding = machine.check_memory(_machine(tmp_path, files))
    assert (finding.found, finding.verdict) == (found, verdict)


@pytest.mark.parametrize(
    ("files", "limited"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, False),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, True),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            True,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            False,
        ),
    ],
)
def test_cores_are_the_least_of_machine_and_container(tmp_path: Path, files: dict[str, str], limited: bool) -> None:
    finding = machine.check_cores(_machine(tmp_path, files))
    assert (finding.found == "0.5 by the container's limit") == limited
    if limited:
        assert finding.verdict == Verdict.WARNING


def test_a_local_folder_in_memory_is_warned_of() -> None:
    shared_memory = Path("/dev/shm")
    if machine._file_system(shared_memory) != "tmpfs":
        pytest.skip("no tmpfs at /dev/shm here")
    finding = machine.check_local_dir(shared_memory)
    assert finding.verdict == Verdict.WARNING
    assert "tmpfs" in finding.found


def test_a_local_folder_that_cannot_be_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/holdfast")):
        finding = machine.check_local_dir(folder)
        assert finding.verdict == Verdict.MISSING, folder
        assert "spark.holdfast.local.dir" in finding.mend


def test_a_local_folder_leaves_no_trace(tmp_path: Path) -> None:
    machine.check_local_dir(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_hard_links_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    finding = machine.check_local_dir(tmp_path)
    assert finding.verdict == Verdict.WARNING
    assert "no hard links" in finding.found
