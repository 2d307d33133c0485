"""The audit as a Spark job: `spark-submit --py-files odradek_audit.zip,odradek_proto.zip audit_job.py --replica
1=/copies/b1 ...`.

Sets no master: that is spark-submit's business. The replicas' directories must be readable by the driver and every
executor under the same path. Exit codes are those of `odradek audit run`: 0 fine, 1 inconclusive, 2 usage, 3
findings.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES
from odradek_audit.inputs.history import CorruptHistory, History
from odradek_audit.inputs.layout import parse_replicas
from odradek_audit.report import RESULT_FILES
from odradek_audit.report.files import write_report
from odradek_audit.report.guarantees import parse_settings
from odradek_audit.report.losses import loss_sentences
from odradek_audit.words import plural

EXIT_USAGE = 2


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    arguments = argparse.ArgumentParser(prog="audit_job.py", description="Audit log directories of odradek or Kafka.")
    arguments.add_argument(
        "--replica", action="append", required=True, metavar="NAME=DIR", help="once for each replica"
    )
    arguments.add_argument("--history", action="append", type=Path, help="what clients were told, in JSON lines")
    arguments.add_argument("--topics", help="only these, separated by commas")
    arguments.add_argument("--settled", action="store_true", help="tails that wait for truncation are findings")
    arguments.add_argument("--deep", action="store_true", default=None, help="decode the records of every batch")
    arguments.add_argument("--split-bytes", type=int, default=DEFAULT_SPLIT_BYTES, help="about what one task reads")
    arguments.add_argument("--out", type=Path, required=True, help=f"where {', '.join(RESULT_FILES)} go")
    arguments.add_argument("--overwrite", action="store_true", help="replace what is in --out")
    arguments.add_argument("--no-html", action="store_true", help="no report.html")
    arguments.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="what the cluster ran with"
    )
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    arguments = parser()
    given = arguments.parse_args(argv)
    if given.history is not None and len(given.history) > 1:
        arguments.error("--history was given more than once, and one file is read: `cat` makes one of several")
    try:
        replicas = {name: Path(path) for name, path in parse_replicas(given.replica).items()}
        settings = parse_settings(given.setting)
        history = History.read(given.history[0]) if given.history else None
    except (ValueError, CorruptHistory, OSError) as error:
        arguments.error(str(error))
    if not given.overwrite and any((given.out / name).exists() for name in RESULT_FILES):
        arguments.error(f"{given.out} already holds a result; give --overwrite to replace it")
    topics = [name.strip() for name in given.topics.split(",")] if given.topics else None

    from pyspark.sql import SparkSession

    from odradek_audit.spark.engine import audit, write_findings

    session = SparkSession.builder.appName("odradek audit").getOrCreate()
    try:
        report = audit(
            session,
            replicas,
            history=history,
            topics=topics,
            settled=given.settled,
            deep=given.deep,
            split_bytes=given.split_bytes,
        )
        report.configuration = settings
        report.made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_findings(session, report, given.out)
    finally:
        session.stop()
    write_report(report, given.out, html=not given.no_html, parquet=False)
    for sentence in loss_sentences(report.losses, len(report.replicas)):
        print(f"LOST: {sentence}")
    print(
        f"{report.verdict} ({len(report.findings)} in all), {plural(report.compared_records, 'record')} in "
        f"{plural(report.compared_batches, 'batch', 'batches')} compared, see {given.out}"
    )
    for finding in report.findings[:20]:
        print(f"{finding.check}: {finding.sentence}")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
