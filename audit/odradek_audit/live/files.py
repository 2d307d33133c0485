"""Files that others read while they are written anew."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: str) -> None:
    """A reader finds the old one or the new one. Raises `OSError` that names the file itself."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(content, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
