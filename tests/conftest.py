"""Options of the whole test run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` accepts what the transcripts say now; read the difference before you commit it."""
    parser.addoption("--rewrite", action="store_true", help="accept the new output of transcripts")
