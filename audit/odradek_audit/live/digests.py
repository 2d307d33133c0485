"""What an audit of a running cluster remembers, in a file of JSON: where it was, and a digest of each 1,024 offsets.

The next audit reads from there on, and with `--from-start` proves that what was compared is still the same. Logs of
compacted topics have no digests, for cleaners change them; what is remembered is how large they were on each broker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek_audit.live.files import replace_file

VERSION = 1


class CorruptDigests(ValueError):
    """The file is none of ours, or of another cluster."""


@dataclass
class RememberedRange:
    """Of one partition: offsets below `end` were compared on all replicas; of a compacted topic when its logs had these
    sizes in bytes, by broker. `epoch` is the newest leader epoch below the leader's own high watermark, which may lie
    above `end`; -1: none was read."""

    end: int = 0
    epoch: int = -1
    blocks: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)


@dataclass
class Digests:
    """By partition (`orders-0`)."""

    cluster_id: str
    partitions: dict[str, RememberedRange] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, cluster_id: str) -> Digests:
        """Nothing where there is no file. Raises `CorruptDigests`, `OSError`."""
        if not path.exists():
            return cls(cluster_id)
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if raw["version"] != VERSION:
                raise CorruptDigests(f"{path} has version {raw['version']}, and this audit reads {VERSION}")
            found = {
                name: RememberedRange(
                    int(each["end"]),
                    int(each["epoch"]),
                    {int(block): int(digest, 16) for block, digest in each["blocks"].items()},
                    {int(broker): int(size) for broker, size in each.get("sizes", {}).items()},
                )
                for name, each in raw["partitions"].items()
            }
            known = str(raw["cluster_id"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, CorruptDigests):
                raise
            raise CorruptDigests(f"{path} is no file of digests: {error}") from error
        if known != cluster_id:
            raise CorruptDigests(f"{path} is of cluster {known}, and this is cluster {cluster_id}: name another file")
        return cls(cluster_id, found)

    def write(self, path: Path) -> None:
        """Replace the file at once: a reader finds the old one or the new one. Raises `OSError`."""
        document = {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "partitions": {
                name: {
                    "end": each.end,
                    "epoch": each.epoch,
                    "blocks": {str(block): f"{digest:016x}" for block, digest in sorted(each.blocks.items())},
                    "sizes": {str(broker): size for broker, size in sorted(each.sizes.items())},
                }
                for name, each in sorted(self.partitions.items())
            },
        }
        replace_file(path, json.dumps(document, indent=1) + "\n")
