"""Hooks of the documents' site (mkdocs.yml): pages from docstrings, and links that leave docs/.

The pages in docs/ are read in the repository, too, where a link may lead to any file. On the site such a link becomes
the file's path; one that leads nowhere fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")
API = {  # page -> its title, what it is, and what is documented
    "api/client.md": (
        "Client API",
        "`from odradek import Producer, Consumer, Admin`; [how to use it](../client.md).",
        (
            "odradek.producing.producer.Producer",
            "odradek.producing.delivery.Delivery",
            "odradek.consuming.consumer.Consumer",
            "odradek.shared.results",
            "odradek.administration.admin.Admin",
            "odradek.administration.descriptions",
            "odradek.administration.groups",
            "odradek_proto.topics.TopicPartition",
            "odradek.shared.errors",
            "odradek.broker_errors",
            "odradek_proto.errors.ErrorCode",
        ),
    ),
    "api/sync.md": (
        "Synchronous API",
        "`from odradek.sync import Producer, Consumer, Admin`.",
        (
            "odradek.sync.producer",
            "odradek.sync.clients",
            "odradek_proto.transport.background",
        ),
    ),
    "api/testing.md": (
        "Testing API",
        "The pytest plugin and the cluster behind it; [how to use them](../testing.md).",
        (
            "odradek_broker.testing.plugin",
            "odradek_broker.testing.cluster.Cluster",
            "odradek_broker.testing.async_cluster.AsyncCluster",
            "odradek_broker.testing.containers.KafkaContainer",
            "odradek_broker.local.cluster.ClusterError",
        ),
    ),
    "api/audit.md": (
        "Audit API",
        "What `odradek audit run` calls; [how to use it](../audit.md).",
        (
            "odradek_audit.engine.local.audit",
            "odradek_audit.engine.local.audit_disk",
            "odradek_audit.report.Report",
            "odradek_audit.findings",
            "odradek_audit.inputs.history",
        ),
    ),
}


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each part of the API."""
    from mkdocs.structure.files import File

    for path, (title, what, names) in API.items():
        blocks = "\n\n".join(f"::: {name}" for name in names)
        files.append(File.generated(config, path, content=f"# {title}\n\n{what}\n\n{blocks}\n"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the path of a file in place of a link to it, where it is not on the site."""
    folder = ROOT / "docs" / Path(page.file.src_uri).parent

    def path_of(match: re.Match[str]) -> str:
        target = (folder / match[2].partition("#")[0]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {match[2]} leads nowhere")
        return f"{match[1]} (`{target.relative_to(ROOT)}`)"

    return markdown if page.file.src_uri.startswith("api/") else LINK.sub(path_of, markdown)
