"""The name under which pytest finds the plugin of `odradek_broker.testing.plugin`.

In an editable installation, pytest rewrites the assertions of the whole top-level package that an entry point names.
Were that `odradek_broker`, every session of pytest would compile the broker anew and run it with rewritten assertions,
which are slower than Python's own.
"""

from odradek_broker.testing.plugin import (
    kafka_bootstrap,
    odradek_bootstrap,
    odradek_cluster,
    odradek_clusters,
    odradek_topic,
    pytest_collection_finish,
    pytest_configure,
)

__all__ = [
    "kafka_bootstrap",
    "odradek_bootstrap",
    "odradek_cluster",
    "odradek_clusters",
    "odradek_topic",
    "pytest_collection_finish",
    "pytest_configure",
]
