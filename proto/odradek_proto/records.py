"""Record batches of magic 2, byte for byte as Kafka has them: one door to the modules that read and write them.

`headers.py` draws the batch's header and reads it, `encoding.py` and `decoding.py` write and read the records inside,
`control.py` the control records. The broker needs the header alone; producers, consumers and the audit need the rest.
"""

from odradek_proto.compression import Codec, CodecUnavailable
from odradek_proto.control import (
    ControlType,
    control_type,
    coordinator_epoch,
    encode_control_batch,
    end_transaction_value,
    leader_change_value,
)
from odradek_proto.decoding import (
    DEFAULT_LIMIT,
    Headers,
    OpenBatch,
    Record,
    RecordPlace,
    decode_records,
    open_batch,
    records_without_key,
)
from odradek_proto.encoding import (
    RecordHeaders,
    RecordToWrite,
    compressed_anew,
    encode_batch,
    estimated_record_size,
    with_records,
    without_records,
)
from odradek_proto.headers import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    check_batch,
    iter_batches,
    read_header,
    stamped_header,
    stamped_prefix,
    verify_crc,
)

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "PREFIX_SIZE",
    "BatchHeader",
    "Buffer",
    "Codec",
    "CodecUnavailable",
    "ControlType",
    "CorruptBatch",
    "Headers",
    "OpenBatch",
    "Record",
    "RecordHeaders",
    "RecordPlace",
    "RecordToWrite",
    "check_batch",
    "compressed_anew",
    "control_type",
    "coordinator_epoch",
    "decode_records",
    "encode_batch",
    "encode_control_batch",
    "end_transaction_value",
    "estimated_record_size",
    "iter_batches",
    "leader_change_value",
    "open_batch",
    "read_header",
    "records_without_key",
    "stamped_header",
    "stamped_prefix",
    "verify_crc",
    "with_records",
    "without_records",
]
