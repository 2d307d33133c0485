"""The result of an audit, and the files that hold it.

`model` puts findings, notes and numbers together and judges them; `files` writes `findings.jsonl`, `summary.json`,
`findings.parquet` and `report.html`; the rest makes the page: `page` its order, `excerpt_html` and `timeline` the two
pictures of each finding, `markup` the only door through which text of a log may come in.
"""

from odradek_audit.report.model import EXIT_FINE, PARQUET_FILE, RESULT_FILES, Report, finish

__all__ = ["EXIT_FINE", "PARQUET_FILE", "RESULT_FILES", "Report", "finish"]
