"""Which compose project is meant, by compose's own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FILES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")


def project_name(given: str | None, environment: Mapping[str, str], here: Path) -> str:
    """The project that was named, or COMPOSE_PROJECT_NAME, or the name of the directory that has the compose file.

    The file is looked for from `here` upwards, as compose does. Without one the name is that of `here`.
    """
    chosen = given or environment.get("COMPOSE_PROJECT_NAME")
    if chosen:
        return chosen
    here = here.absolute()
    found = (place for place in (here, *here.parents) if any((place / name).is_file() for name in FILES))
    return normalised(next(found, here).name)


def normalised(name: str) -> str:
    """A directory's name as compose makes a project of it."""
    return re.sub(r"[^-_a-z0-9]", "", name.lower()).lstrip("-_") or "default"
