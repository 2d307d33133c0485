"""The result of an audit, and the files that hold it.

`model` puts findings, notes and numbers together and judges them; `files` writes `findings.jsonl`, `summary.json`,
`findings.parquet` and `report.html`; the rest makes the page: `page` its order, `excerpt_html` and `timeline` the two
pictures of each finding, `markup` the only door through which text of a log may come in.
"""

from odradek_audit.report.model import (
    EXIT_FINDINGS,
    EXIT_FINE,
    EXIT_INCONCLUSIVE,
    FINDINGS_FILE,
    HTML_FILE,
    PARQUET_FILE,
    RESULT_FILES,
    SUMMARY_FILE,
    Report,
    finish,
)

__all__ = [
    "EXIT_FINDINGS",
    "EXIT_FINE",
    "EXIT_INCONCLUSIVE",
    "FINDINGS_FILE",
    "HTML_FILE",
    "PARQUET_FILE",
    "RESULT_FILES",
    "SUMMARY_FILE",
    "Report",
    "finish",
]
