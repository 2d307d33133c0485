"""The 61 bytes in front of every record batch (magic 2), and all that can be known of a batch without its records.

    offset  bytes  field
         0      8  base offset
         8      4  batch length: what follows this field
        12      4  partition leader epoch
        16      1  magic, 2
        17      4  CRC-32C, unsigned, of all bytes from the attributes to the end
        21      2  attributes: codec (bits 0-2), log append time (3), transactional (4), control (5), delete horizon (6)
        23      4  last offset delta
        27      8  base timestamp
        35      8  max timestamp
        43      8  producer id
        51      2  producer epoch
        53      4  base sequence
        57      4  record count
        61         the records, compressed as one when there is a codec

Rules of this module. The first 16 bytes lie outside of the CRC, so the broker stamps base offset and leader epoch
without a look at the rest. Whatever is wrong with bytes is `CorruptBatch`, never another exception. All integers are
big-endian.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from odradek_proto.checksum import crc32c
from odradek_proto.compression import Codec

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
PREFIX_SIZE: Final = 16  # base offset, batch length, partition leader epoch: outside of the CRC
LENGTH_END: Final = 12  # the batch length counts what follows it
CRC_START: Final = 21  # the first byte that the CRC covers
ATTRIBUTES: Final = 22  # the lower byte of them, with the codec
MAGIC: Final = 2
LARGEST_BATCH: Final = 1 << 30  # segment.bytes, Kafka's default: no batch can be larger than a segment
LAST_SEQUENCE: Final = 0x7FFFFFFF  # after it, sequence numbers start again from 0
LAST_OFFSET: Final = 0x7FFFFFFFFFFFFFFF

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
RESERVED: Final = ~0x7F

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
PREFIX: Final = struct.Struct(">qii")
assert HEADER.size == HEADER_SIZE
assert PREFIX.size == PREFIX_SIZE

_SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_END
_LARGEST_LENGTH: Final = LARGEST_BATCH - LENGTH_END
LAST_CODEC: Final = int(max(Codec))
_CODECS: Final = tuple(Codec)  # by number


class CorruptBatch(ValueError):
    """Bytes that are no record batch, or not the one that they say they are.

    `reason` says what is wrong, `position` is the byte of the buffer at which the batch, or the wrong part of it,
    starts.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"corrupt record batch at byte {position}: {reason}")
        self.reason = reason
        self.position = position


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in the order of the bytes. `length` is batchLength: 12 bytes less than `size`."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or of what was the last one before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed.

        Raises `CorruptBatch` for a codec that nobody knows (`check_batch` refuses it).
        """
        number = self.attributes & CODEC_MASK
        if number > LAST_CODEC:
            raise CorruptBatch(f"unknown codec {number}", 0)
        return _CODECS[number]

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without one.

        It wraps from 2^31 - 1 to 0, if need be inside the batch.
        """
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & LAST_SEQUENCE

    @property
    def is_control(self) -> bool:
        """Whether the records are control records (transaction markers, leader changes) that no consumer is given."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def timestamp_type_log_append(self) -> bool:
        """Whether the broker gave all records the time of the append, which is the max timestamp."""
        return self.attributes & LOG_APPEND_TIME != 0


_new_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(
    tuple.__new__, BatchHeader
)  # no Python in between


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`, without a look at anything behind it.

    Raises `CorruptBatch` for fewer than 61 bytes, another magic, a length below that of an empty batch or above 1
    GiB, and negative counts. It does not check the CRC.
    """
    try:
        fields = HEADER.unpack_from(buf, position)
    except struct.error:
        raise CorruptBatch(f"{len(buf) - position} bytes are no whole header", position) from None
    if fields[3] != 2 or not _SMALLEST_LENGTH <= fields[1] <= _LARGEST_LENGTH or fields[6] < 0 or fields[12] < 0:
        raise CorruptBatch(_header_fault(BatchHeader._make(fields)), position)
    return _new_header(fields)


def _header_fault(header: BatchHeader) -> str:
    if header.magic != MAGIC:
        return f"magic {header.magic}, not 2"
    if not _SMALLEST_LENGTH <= header.length <= _LARGEST_LENGTH:
        return f"batch length {header.length}"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    return f"record count {header.record_count}"


def verify_crc(buf: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether the whole batch is in the buffer and its CRC is right."""
    end = position + LENGTH_END + header.length
    return end <= len(buf) and crc32c(memoryview(buf)[position + CRC_START : end]) == header.crc


def check_batch(buf: Buffer, position: int = 0, *, compacted: bool = False) -> BatchHeader:
    """Read a header and check all that can be checked without reading records. Raises `CorruptBatch`.

    The whole batch is present, its CRC is right, the codec is known, the record count fits the last offset delta, and
    the offsets fit into 64 bits. A batch of a `compacted` log may hold fewer records than it has offsets, and even
    none.
    """
    header = read_header(buf, position)
    base_offset, length, _, _, crc, attributes, last_delta, _, _, _, _, _, count = header  # quicker than by name
    end = position + LENGTH_END + length
    if end > len(buf):
        raise CorruptBatch(f"{len(buf) - position} of {header.size} bytes", position)
    if crc32c(memoryview(buf)[position + CRC_START : end]) != crc:
        raise CorruptBatch(f"the CRC is not {crc:#010x}", position)
    if attributes & CODEC_MASK > LAST_CODEC:
        raise CorruptBatch(f"unknown codec {attributes & CODEC_MASK}", position)
    if count != last_delta + 1 and not (compacted and count <= last_delta):
        raise CorruptBatch(f"{count} records for {last_delta + 1} offsets", position)
    if not 0 <= base_offset < LAST_OFFSET - last_delta:
        raise CorruptBatch(f"base offset {base_offset}", position)
    return header


def iter_batches(buf: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Walk over the headers of batches that stand one behind the other, each with its position in the buffer.

    It stops before a batch of which only a part is there (answers to fetches and torn files end so), and raises
    `CorruptBatch` at a corrupt header. CRCs are not checked. Since nothing protects the length field, a wrong length
    can look like a part of a batch: whoever needs to know compares the end of the last batch with the end of the
    buffer.
    """
    end = len(buf)
    while position + HEADER_SIZE <= end:
        header = read_header(buf, position)
        behind = position + LENGTH_END + header.length
        if behind > end:
            return
        yield position, header
        position = behind


def stamped_header(header: BatchHeader, records: Buffer) -> tuple[BatchHeader, bytes]:
    """The header with the CRC that its attributes and times and these records have, and its 61 bytes.

    For whoever changes what the CRC covers: a leader that gives a batch the time of its append.
    """
    fields = HEADER.pack(*header)
    sealed = header._replace(crc=crc32c(records, crc32c(memoryview(fields)[CRC_START:])))
    return sealed, HEADER.pack(*sealed)


def stamped_prefix(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch: base offset, batch length (the header's `length`), partition leader epoch."""
    return PREFIX.pack(base_offset, length, leader_epoch)
