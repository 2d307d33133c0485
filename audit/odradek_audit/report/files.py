"""Writes an audit's result into a directory: JSON always, Parquet where pyarrow is, the page unless told otherwise."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path

from odradek_audit.inputs.stores import is_uri, local_path, upload
from odradek_audit.report.model import FINDINGS_FILE, HTML_FILE, PARQUET_FILE, SUMMARY_FILE, Report
from odradek_audit.report.page import page


def write_report(report: Report, target: Path | str, *, html: bool = True) -> list[str]:
    """Write the files and return their names; the directory, here or in a store, is made. Raises `OSError`.

    Without pyarrow there is no `findings.parquet`.
    """
    if isinstance(target, str) and is_uri(target):
        with tempfile.TemporaryDirectory(prefix="odradek-audit-") as folder:
            written = write_report(report, Path(folder), html=html)
            upload([Path(folder, name) for name in written], target)
            return written
    directory = target if isinstance(target, Path) else local_path(target)
    directory.mkdir(parents=True, exist_ok=True)
    written = [FINDINGS_FILE, SUMMARY_FILE]
    lines = "".join(finding.to_json() + "\n" for finding in report.findings)
    (directory / FINDINGS_FILE).write_text(lines, encoding="utf-8", errors="surrogatepass")
    text = json.dumps(report.summary(), indent=2, ensure_ascii=False)
    (directory / SUMMARY_FILE).write_text(text + "\n", encoding="utf-8", errors="surrogatepass")
    if importlib.util.find_spec("pyarrow") is not None:
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
