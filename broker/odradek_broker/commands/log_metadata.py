"""Records of the metadata log as fields, for `odradek log dump --cluster-metadata`.

A value is shown as Kafka's decoder shows it: the type of the record and its fields by name. Ids of topics and
directories are in Kafka's text form; a field that was not set is left out.
"""

from __future__ import annotations

import json
from typing import Any, Final

from odradek_proto.control import ControlType, control_type
from odradek_proto.headers import CorruptBatch
from odradek_proto.messages import DecodeError, Message
from odradek_proto.metadata_snapshots import CorruptSnapshot, header_timestamp
from odradek_proto.records import Record
from odradek_proto.topics import topic_id_to_text
from odradek_proto.v1.metadata_messages import MetadataRecord

SECRETS: Final = ("salt", "stored_key", "server_key")  # of a SCRAM credential: what is printed is pasted into issues
TYPE_NAMES: Final = {kind: f"{kind.upper()}_RECORD" for kind in MetadataRecord.__struct_fields__}


def metadata_payload(record: Record, *, is_control: bool) -> dict[str, Any]:
    """What to show instead of key and payload: one column, `payload` or for a control record its type."""
    if is_control:
        return _control(record)
    try:
        decoded = MetadataRecord.FromString(record.value or b"")
    except DecodeError as error:
        return {"isvalid": False, "error": f"no metadata record: {error}"}
    kinds = [kind for kind in TYPE_NAMES if getattr(decoded, kind) is not None]
    if not kinds:
        return {"isvalid": False, "error": "a metadata record of a kind that this version does not know"}
    shown = {"type": TYPE_NAMES[kinds[0]], "data": _fields(getattr(decoded, kinds[0]))}
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
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in SECRETS:
            shown[name] = "[hidden]"
            continue
        if isinstance(value, bytes):
            shown[name] = topic_id_to_text(value) if len(value) == 16 else value.hex()
        elif value is not None:
            shown[name] = list(value) if isinstance(value, tuple) else value
    return shown
