"""Records of the metadata log as fields, for `odradek log dump --cluster-metadata`.

A value is shown as Kafka's decoder shows it: the type of the record and its fields by name. Ids of topics and
directories are in Kafka's text form; a field that was not set is left out.
"""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from odradek_proto.control import ControlType, control_type
from odradek_proto.headers import CorruptBatch
from odradek_proto.metadata_snapshots import CorruptSnapshot, header_timestamp
from odradek_proto.records import Record
from odradek_proto.topics import topic_id_to_text
from odradek_proto.v1.metadata_pb2 import MetadataRecord

TYPE_NAMES: Final = {field.name: f"{field.name.upper()}_RECORD" for field in MetadataRecord.DESCRIPTOR.fields}


def metadata_payload(record: Record, *, is_control: bool) -> dict[str, Any]:
    """What to show instead of key and payload: one column, `payload` or for a control record its type."""
    if is_control:
        return _control(record)
    try:
        decoded = MetadataRecord.FromString(record.value or b"")
        kind = decoded.WhichOneof("kind")
    except DecodeError as error:
        return {"isvalid": False, "error": f"no metadata record: {error}"}
    if kind is None:
        return {"isvalid": False, "error": "a metadata record of a kind that this version does not know"}
    shown = {"type": TYPE_NAMES[kind], "data": _fields(getattr(decoded, kind))}
    return {"payload": json.dumps(shown, ensure_ascii=False, separators=(",", ":"))}


def _control(record: Record) -> dict[str, Any]:
    try:
        number = control_type(record)
        name = ControlType(number).name
        if number == ControlType.SNAPSHOT_HEADER:
            return {"controlType": name, "lastContainedLogTimestamp": header_timestamp(record.value or b"")}
    except (CorruptBatch, CorruptSnapshot) as error:
        return {"isvalid": False, "error": str(error)}
    except ValueError:
        name = f"UNKNOWN_{number}"
    return {"controlType": name}


def _fields(message: Message) -> dict[str, Any]:
    """Every field that is set or has no presence of its own, by its name."""
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if isinstance(value, bytes):
            shown[field.name] = topic_id_to_text(value) if len(value) == 16 else value.hex()
        elif isinstance(value, bool | int | str):
            shown[field.name] = value
        else:
            shown[field.name] = dict(value) if hasattr(value, "items") else list(value)
    return shown
