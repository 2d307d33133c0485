"""`meta.properties`: to which node and cluster a log directory belongs, and its own id."""

from __future__ import annotations

import random

from odradek_proto.formats import (
    META_PROPERTIES,
    CorruptFile,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from odradek_proto.topics import topic_id_to_text
from odradek_proto.transport.ports import Files

from odradek_broker.storage.atomic import read_file, replace_file
from odradek_broker.storage.errors import WrongLogDirectory

REMEDY = (
    "restore the file from a backup, or remove it if this is the directory of this node and others have replicas of"
    " all that is in it: the node then comes back as one with another disk, and leads nothing before it has caught up"
)


def settle_properties(
    files: Files, path: str, node_id: int, cluster_id: str | None, rng: random.Random
) -> MetaProperties:
    """Compare `meta.properties` with who we are, or write it into a new directory. Raises `WrongLogDirectory`."""
    content = read_file(files, f"{path}/{META_PROPERTIES}")
    if content is None:
        made = MetaProperties(node_id, cluster_id or _new_id(rng), _new_id(rng))
        replace_file(files, path, META_PROPERTIES, encode_meta_properties(made), durable=True)
        return made
    try:
        properties = decode_meta_properties(content)
    except CorruptFile as error:
        raise WrongLogDirectory(f"{path}/{META_PROPERTIES} cannot be read ({error}): {REMEDY}") from None
    if properties.node_id != node_id:
        raise WrongLogDirectory(
            f"{path} belongs to node {properties.node_id}, not to node {node_id}: correct node.id or log.dirs"
        )
    if cluster_id is not None and properties.cluster_id != cluster_id:
        raise WrongLogDirectory(
            f"{path} belongs to cluster {properties.cluster_id}, not to cluster {cluster_id}: correct cluster.id or "
            f"log.dirs"
        )
    if properties.directory_id is None:
        properties = MetaProperties(node_id, properties.cluster_id, _new_id(rng))
        replace_file(files, path, META_PROPERTIES, encode_meta_properties(properties), durable=True)
    return properties


def _new_id(rng: random.Random) -> str:
    """A random id of 16 bytes as text: of version 4, and with a letter in front, as Kafka makes them."""
    while True:
        raw = bytearray(rng.getrandbits(128).to_bytes(16, "big"))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        text = topic_id_to_text(bytes(raw))
        if not text.startswith("-"):
            return text
