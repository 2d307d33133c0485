"""Writes an audit's result into a directory: JSON always, Parquet where pyarrow is, the page unless told otherwise."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

from odradek_audit.report.model import FINDINGS_FILE, HTML_FILE, PARQUET_FILE, SUMMARY_FILE, Report
from odradek_audit.report.page import page


def write_report(report: Report, directory: Path, *, html: bool = True, parquet: bool = True) -> list[str]:
    """Write the files and return their names; the directory is made. Raises `OSError`.

    `parquet` false: somebody else has written that file, as the Spark engine does. Without pyarrow there is none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = [FINDINGS_FILE, SUMMARY_FILE]
    lines = "".join(finding.to_json() + "\n" for finding in report.findings)
    (directory / FINDINGS_FILE).write_text(lines, encoding="utf-8", errors="surrogatepass")
    text = json.dumps(report.summary(), indent=2, ensure_ascii=False)
    (directory / SUMMARY_FILE).write_text(text + "\n", encoding="utf-8", errors="surrogatepass")
    if parquet and importlib.util.find_spec("pyarrow") is not None:
        from odradek_audit.report.parquet import write_parquet

        remove(directory / PARQUET_FILE)
        write_parquet(report.findings, directory / PARQUET_FILE)
        written.append(PARQUET_FILE)
    if html:
        (directory / HTML_FILE).write_text(page(report), encoding="utf-8", errors="backslashreplace")
        written.append(HTML_FILE)
    return written


def remove(path: Path) -> None:
    """An earlier result: a file of pyarrow's, or a directory of Spark's. Nothing there is fine. Raises `OSError`."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
