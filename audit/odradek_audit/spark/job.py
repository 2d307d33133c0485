"""The audit as a Spark job; spark-submit starts it through `audit_job.py`.

Sets no master: that is spark-submit's business. The replicas' directories must be readable by the driver and every
executor under the same path or URI. Exit codes are those of `odradek audit run`: 0 fine, 1 inconclusive, 2 usage, 3
findings.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek_proto.command_line import FAILED, CommandFailed
from odradek_proto.output_places import check_output_directory

from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES
from odradek_audit.inputs.history import CorruptHistory
from odradek_audit.inputs.layout import replicas_of
from odradek_audit.inputs.stores import is_uri, local_name, names_in
from odradek_audit.report import PARQUET_FILE, RESULT_FILES
from odradek_audit.report.files import write_report
from odradek_audit.report.guarantees import parse_settings
from odradek_audit.report.headlines import verdict_word
from odradek_audit.report.losses import loss_sentences
from odradek_audit.words import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES, YARN_ARCHIVES = "spark.archives", "spark.yarn.dist.archives"
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    arguments = argparse.ArgumentParser(prog="audit_job.py", description="Audit log directories of odradek or Kafka.")
    arguments.add_argument(
        "--replica", action="append", default=[], metavar="NAME=DIR", help="once for each replica: a path, or a URI"
    )
    arguments.add_argument(
        "--data", action="append", default=[], metavar="DIR", help="instead: what holds the brokers' directories"
    )
    arguments.add_argument("--history", action="append", help="what clients were told, in JSON lines")
    arguments.add_argument("--topics", help="only these, separated by commas")
    arguments.add_argument("--settled", action="store_true", help="tails that wait for truncation are findings")
    arguments.add_argument("--deep", action="store_true", default=None, help="decode the records of every batch")
    arguments.add_argument("--split-bytes", type=int, default=DEFAULT_SPLIT_BYTES, help="about what one task reads")
    arguments.add_argument("--out", required=True, help=f"where {', '.join(RESULT_FILES)} go")
    arguments.add_argument("--overwrite", action="store_true", help="replace what is in --out")
    arguments.add_argument("--no-html", action="store_true", help="no report.html")
    arguments.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="what the cluster ran with"
    )
    return arguments


def main(argv: list[str] | None = None, *, archive: str = "", python_path: str = "") -> int:
    """Run the job and return its exit code.

    `archive` is given to every executor, whose Python finds modules in `python_path` (`audit_job.py`).
    """
    arguments = parser()
    given = arguments.parse_args(argv)
    if given.history is not None and len(given.history) > 1:
        arguments.error("--history was given more than once, and one file is read: `cat` makes one of several")
    try:
        replicas = replicas_of(given.replica, given.data)
        settings = parse_settings(given.setting)
        if not is_uri(given.out):
            check_output_directory("--out", local_name(given.out))
        present = names_in(given.out).intersection(RESULT_FILES)
    except (ValueError, OSError, CommandFailed) as error:
        arguments.error(str(error))
    if present and not given.overwrite:
        arguments.error(f"{given.out} already holds a result; give --overwrite to replace it")
    topics = [name.strip() for name in given.topics.split(",")] if given.topics else None

    from odradek_audit.spark.engine import audit

    session = _session(archive, python_path)
    try:
        report = audit(
            session,
            replicas,
            history=given.history[0] if given.history else None,
            topics=topics,
            settled=given.settled,
            deep=given.deep,
            split_bytes=given.split_bytes,
        )
        report.configuration = settings
        report.history_file = given.history[0] if given.history else ""
        report.made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    except (CorruptHistory, OSError) as error:
        arguments.error(str(error))
    finally:
        session.stop()
    for sentence in loss_sentences(report):
        print(f"LOST: {sentence}")
    print(
        f"{verdict_word(report)}, {plural(len(report.findings), 'finding')}: "
        f"{plural(report.compared_records, 'record')} in {plural(report.compared_batches, 'batch', 'batches')} "
        "compared"
    )
    for finding in report.findings[:20]:
        print(f"{finding.check}: {finding.sentence}")
    try:
        written = write_report(report, given.out, html=not given.no_html)
    except OSError as error:
        print(f"audit_job.py: --out {given.out} was not written: {error.strerror or error}", file=sys.stderr)
        return report.exit_code or FAILED
    if PARQUET_FILE not in written:
        print(f"no {PARQUET_FILE}: the driver's Python has no pyarrow (odradek audit package --with pyarrow)")
    print(f"see {given.out}")
    return report.exit_code


def _session(archive: str, python_path: str) -> SparkSession:
    """The session that spark-submit asked for. Its executors get the archive beside what they were given anyway."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf()
    given = conf.get(ARCHIVES, "") or ""
    if archive and not any(f"#{archive.rpartition('#')[2]}" in conf.get(key, "") for key in (ARCHIVES, YARN_ARCHIVES)):
        conf.set(ARCHIVES, ",".join(each for each in (given, archive) if each))
    if python_path:
        paths = (python_path, conf.get(PYTHON_PATH, "") or "")
        conf.set(PYTHON_PATH, os.pathsep.join(path for path in paths if path))
    return SparkSession.builder.config(conf=conf).appName("odradek audit").getOrCreate()
