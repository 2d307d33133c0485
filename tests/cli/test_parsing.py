"""What people type, as values."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import BinaryIO, TypeVar

import pytest
from odradek import ConsumerRecord
from odradek.cli.records.format import compile_format, json_line
from odradek.cli.records.outgoing import (
    CHUNK_BYTES,
    Outgoing,
    generated_records,
    lines_of,
    parse_headers,
    records_of_json,
    records_of_lines,
)
from odradek.cli.terminal.failures import did_you_mean, report
from odradek.cli.terminal.parsing import (
    ReadSpan,
    Start,
    parse_partition,
    parse_settings,
    parse_size,
    parse_span,
    parse_start,
)
from odradek.cli.terminal.screen import human_bytes, table
from odradek_proto.command_line import CommandFailed
from odradek_proto.topics import TopicPartition

T = TypeVar("T")
RECORD: ConsumerRecord[bytes | None, bytes | None] = ConsumerRecord(
    "orders", 2, 41, 1735689600000, b"k", b"v\xff", (("h", b"x"),), 3
)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_start, "beginning", Start("beginning")),
        (parse_start, "end", Start("end")),
        (parse_start, "17", Start("offset", 17)),
        (parse_start, "-5", Start("last", 5)),
        (parse_start, "@1735689600000", Start("time", 1735689600000)),
        (parse_start, "@2025-01-01T00:00:00+00:00", Start("time", 1735689600000)),
        (parse_start, f"{(1 << 63) - 1}", Start("offset", (1 << 63) - 1)),
        (parse_start, f"@{(1 << 63) - 1}", Start("time", (1 << 63) - 1)),
        (parse_span, "5", ReadSpan(Start("offset", 5))),
        (parse_span, "5:10", ReadSpan(Start("offset", 5), Start("offset", 10))),
        (parse_span, ":end", ReadSpan(Start("beginning"), Start("end"))),
        (parse_span, "-10:-2", ReadSpan(Start("last", 10), Start("last", 2))),
        (parse_span, "@5:@10", ReadSpan(Start("time", 5), Start("time", 10))),
        (parse_span, "@1970-01-01T00:00+00:00:end", ReadSpan(Start("time", 0), Start("end"))),
        (parse_span, "@1970-01-01T00:00+00:00:@1970-01-01T00:01Z", ReadSpan(Start("time", 0), Start("time", 60_000))),
        (parse_partition, "my-orders/12", TopicPartition("my-orders", 12)),  # as it is taken, too
        (parse_partition, "my-orders-12", TopicPartition("my-orders", 12)),  # as it is printed
        (parse_partition, "orders/2147483647", TopicPartition("orders", (1 << 31) - 1)),
        (parse_size, "100", 100),
        (parse_size, "16KiB", 16384),
        (parse_size, "1MiB", 1 << 20),
        (parse_size, "2k", 2048),
        (parse_size, "2147483647", (1 << 31) - 1),
    ],
)
def test_what_is_typed_is_taken(parse: Callable[[str], object], text: str, expected: object) -> None:
    """Places in a log in kcat's and Kafka's ways, two of them with a colon between, which is one of several where there
    are times; partitions in two spellings; sizes with or without a unit; up to what goes over the wire."""
    assert parse(text) == expected


NO_SPANS = (":", "5:", "5:x", "x:5", "5:10:15", "@2026-01-31T12:00:99", "@5:7", "5:1", "-2:-10", "@10:@5")
TOO_LARGE = ("2147483648", "9" * 5000)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        *((parse_start, text, "") for text in ("", "5x", "@yesterday", "--5", "s@5")),
        *((parse_start, text, "at most 9223372036854775807") for text in (f"{1 << 63}", f"-{1 << 63}", f"@{1 << 63}")),
        (parse_start, "9" * 5000, "at most 9223372036854775807"),
        (parse_start, "@1969-12-31T23:59:59.999+00:00", "before 1970"),  # Kafka gives -1 and -2 a meaning of their own
        (parse_start, "@0001-01-01", "before 1970"),
        *((parse_span, text, "") for text in NO_SPANS),  # no time that can be, no range that ends before it begins
        *((parse_partition, text, "") for text in ("orders", "orders/", "/1", "orders/x", "orders-01", "a/b/c")),
        *((parse_partition, f"orders/{number}", "at most 2147483647") for number in TOO_LARGE),
        *((parse_size, number, "at most 2147483647") for number in (*TOO_LARGE, "2048M")),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_cannot_be_is_refused(parse: Callable[[str], object], text: str, said: str) -> None:
    """As wrong usage, in a sentence that is not as long as the number."""
    with pytest.raises(CommandFailed) as refused:
        parse(text)
    assert refused.value.exit_code == 2
    assert said in str(refused.value)
    assert len(str(refused.value)) < 120


def test_a_setting_that_is_all_digits_and_a_unit_is_refused_at_any_length() -> None:
    """The hint says which number it would be, as long as that is one that Python writes."""
    with pytest.raises(CommandFailed, match="the value is a plain number"):
        parse_settings([f"retention.ms={'9' * 5000}d"], "--config")


def test_a_format_has_kcats_letters() -> None:
    """Percent letters, escapes and what stands between them."""
    show = compile_format(r"%t/%p@%o %k=%s [%h] %T %e %K %S 100%%\n")
    assert show(RECORD) == b"orders/2@41 k=v\xff [h=x] 1735689600000 3 1 2 100%\n"


def test_json_lines_keep_what_is_no_text() -> None:
    """Bytes that are no UTF-8 come as base64 under another name."""
    facts = json.loads(json_line(RECORD))
    assert facts["key"] == "k"
    assert facts["value_b64"] == "dv8="
    assert facts["headers"] == [{"key": "h", "value": "x"}]


def collect(source: AsyncIterator[Iterable[T]], found: list[T] | None = None) -> list[T]:
    """All of all portions; what came before an error is in `found`."""
    found = [] if found is None else found

    async def work() -> None:
        async for portion in source:
            for each in portion:
                found.append(each)

    asyncio.run(work())
    return found


def test_lines_of_any_ending() -> None:
    """A last line needs no newline, a carriage return is dropped, an empty line is an empty record."""
    assert collect(lines_of(io.BytesIO(b"one\r\n\ntwo"))) == [b"one", b"", b"two"]


def test_long_input_is_cut_into_lines_across_chunks() -> None:
    """Lines that straddle the chunks in which a pipe is read come out whole."""
    wanted = [b"%d" % number * (number % 700) for number in range(2000)]
    assert collect(lines_of(io.BytesIO(b"\n".join(wanted)))) == wanted
    at_the_border = b"x" * (CHUNK_BYTES - 1)
    assert collect(lines_of(io.BytesIO(at_the_border + b"\r\nnext\n"))) == [at_the_border, b"next"]


def test_lines_of_a_pipe_without_waiting() -> None:
    """A pipe that is set to non-blocking is waited for, and its last line needs no newline."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    async def work(file: BinaryIO) -> list[bytes]:
        lines = lines_of(file)
        found = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)  # it waits for the pipe
        os.write(writing, b"one\r\ntw")
        first = await found
        os.write(writing, b"o\n" + b"x" * 10_000)
        os.close(writing)
        return [*first, *[line async for more in lines for line in more]]

    with open(reading, "rb") as file:
        assert asyncio.run(work(file)) == [b"one", b"two", b"x" * 10_000]


def test_input_that_cannot_be_read_is_an_error() -> None:
    """The end of a pipe that is there to be written raises what the system says; nobody waits for a line for ever."""
    reading, writing = os.pipe()
    os.close(reading)

    async def work(file: BinaryIO) -> None:
        await anext(lines_of(file))

    with open(writing, "rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        asyncio.run(work(file))


def test_keys_stand_before_the_first_separator() -> None:
    """Only the first separator counts; a line without one has no key."""
    found = collect(records_of_lines(io.BytesIO(b"k:v:w\nplain\n"), ":", (), None))
    assert [(record.key, record.value) for record in found] == [(b"k", b"v:w"), (None, b"plain")]


def test_what_consume_prints_can_be_produced() -> None:
    """A JSON line of `consume -J` gives the same key, value, headers and timestamp back."""
    (record,) = collect(records_of_json(io.BytesIO(json_line(RECORD)), (), None))
    assert record == Outgoing(RECORD.key, RECORD.value, RECORD.headers, None, RECORD.timestamp)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b'{"value_b64": "!"}',
        b'{"timestamp": "soon"}',
        b'{"timestamp": true}',
        b'{"timestamp": 1e30}',
        b'{"timestamp": 1.5}',
        b'{"timestamp": -2}',
        b'{"timestamp": 9223372036854775808}',
        b'{"timestamp": Infinity}',
        b'{"timestamp": ' + b"9" * 5000 + b"}",
        b'{"headers": [1]}',
        b'{"key": "\\ud800"}',
        b'{"headers": {"\\ud800": "x"}}',
        b"[" * 200_000,
    ],
    ids=lambda line: line[:24].decode(),
)
def test_a_line_that_is_no_record_is_named(line: bytes) -> None:
    """Wrong JSON is refused with the number of its line; what stands before it is sent."""
    found: list[Outgoing] = []
    with pytest.raises(CommandFailed, match="input line 2"):
        collect(records_of_json(io.BytesIO(b'{"value": "v"}\n' + line + b"\n"), (), None), found)
    assert [record.value for record in found] == [b"v"]


@pytest.mark.parametrize(
    ("line", "field", "near"),
    [
        (b'{"valu": "x"}', "valu", "; did you mean 'value'?"),
        (b'{"value": "v", "ttl": 3}', "ttl", ""),
        (b'{"value": "v", "headers": [{"key": "h", "valeu": "x"}]}', "valeu", "; did you mean 'value'?"),
    ],
)
def test_a_field_that_means_nothing_is_refused(line: bytes, field: str, near: str) -> None:
    """A slip of the pen must not become a record without a value: the field is named, and those that there are."""
    with pytest.raises(CommandFailed) as failed:
        collect(records_of_json(io.BytesIO(line), (), None))
    assert str(failed.value).startswith(f"input line 1 is no record: there is no field {field!r}{near}")
    assert "value_b64" in str(failed.value)
    assert failed.value.exit_code == 1


@pytest.mark.parametrize("number", [-1, 0, (1 << 63) - 1])
def test_timestamps_that_records_can_have(number: int) -> None:
    """-1 for none, as `consume -J` prints it, up to what 64 bits hold; as a text, too."""
    found = collect(
        records_of_json(io.BytesIO(b'{"timestamp": %d}\n{"timestamp": "%d"}\n' % (number, number)), (), None)
    )
    assert [record.timestamp for record in found] == [number, number]


def test_a_header_that_is_no_text_goes_there_and_back() -> None:
    """As keys and values do: `consume -J` prints its bytes as base64."""
    record: ConsumerRecord[bytes | None, bytes | None] = ConsumerRecord(
        "orders", 2, 41, 1735689600000, b"k", b"v", (("trace", b"\xff\x00"), ("none", None)), 3
    )
    (again,) = collect(records_of_json(io.BytesIO(json_line(record)), (), None))
    assert again.headers == record.headers


def test_generated_records_differ_and_have_their_size() -> None:
    """Each has exactly the size that was asked for, and no two are the same."""
    found = collect(generated_records(500, 20, (), None))
    assert {len(record.value or b"") for record in found} == {20}
    assert len({record.value for record in found}) == 500
    assert [record.value for record in collect(generated_records(1, 0, (), None))] == [b""]


def test_headers_need_a_name() -> None:
    """name=value, where the value may be empty or hold an equals sign."""
    assert parse_headers(["a=b=c", "d="]) == (("a", b"b=c"), ("d", b""))
    with pytest.raises(CommandFailed):
        parse_headers(["=x"])


def test_tables_align_and_keep_what_is_long() -> None:
    """Numbers to the right, text to the left, nothing cut."""
    assert table(("N",), [(10,), (None,)]).splitlines() == [" N", "10", " -"]
    assert table(("NAME", "N"), [("a" * 90, 5), ("b", 100)]).splitlines() == [
        "NAME" + " " * 86 + "    N",
        "a" * 90 + "    5",
        "b" + " " * 89 + "  100",
    ]


def test_near_names_are_offered() -> None:
    """A name that is nearly right is completed; one that is far off gets no guess."""
    assert did_you_mean("ordrs", ["orders", "users"]) == "; did you mean 'orders'?"
    assert did_you_mean("kafka", ["kafka-log", "kafka-clients"]) == "; did you mean 'kafka-clients' or 'kafka-log'?"
    assert did_you_mean("zzz", ["orders"]) == ""
    assert human_bytes(1536) == "1.5 KiB"


def test_lines_that_a_message_quotes_stay_lines_and_what_was_typed_stays_on_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broker's last words were one line of two thousand characters."""
    report(CommandFailed("broker 1 ended; the end of 'b\n1.log':\n    one\x1b\n    two"), str)
    assert capsys.readouterr().err == "odradek: broker 1 ended; the end of 'b\\n1.log':\n    one\\x1b\n    two\n"
