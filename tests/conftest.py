"""Options of the whole test run."""

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and none that fails because the machine stopped while it was drawn or tried.
settings.register_profile("odradek", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` accepts what the transcripts say now; read the difference before you commit it."""
    parser.addoption("--rewrite", action="store_true", help="accept the new output of transcripts")
