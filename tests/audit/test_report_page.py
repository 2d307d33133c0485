"""report.html as text: what it says first, what it must never contain, and how large it may become."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from odradek_audit.catalogue import CHECKS
from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.history import ACK, ACKS_ALL, SEND, Event, History
from odradek_audit.report import Report
from odradek_audit.report.files import write_report
from odradek_audit.report.guarantees import rows_for
from odradek_audit.report.headlines import headline, verdict_sentences
from odradek_audit.report.markup import SafeMarkup, shown, tag
from odradek_audit.report.page import page
from odradek_audit.words import plain
from odradek_proto.compression import Codec
from odradek_proto.headers import CRC_START
from odradek_proto.records import encode_batch
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import VALUES, log_of, told
from tests.audit.corruption import plant
from tests.audit.corruption.places import flip_bit, with_crc
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster
from tests.seeds import seeds

PARTITION = TopicPartition("t", 0)
ELEMENTS = """
    html head meta link title style body a header h1 main section div p ul ol li h2 h3 h4 table thead tbody tr th td
    caption details summary bdi code b em span mark article figure figcaption pre footer svg g rect line path text
    circle dl dt dd abbr
"""
ATTRIBUTES = """
    charset http-equiv content name rel href lang class id role aria-label aria-hidden tabindex title open scope
    rowspan colspan data-replica viewbox x y x1 y1 x2 y2 cx cy r d width height text-anchor
"""
HOSTILE = (
    b"<script>alert(1)</script>",
    b"</svg><img src=x onerror=alert(1)>",
    b"\"' onmouseover=alert(1) x='",
    "\u202egnp.exe\u2066\u200b\ufeff".encode(),
    b"nul\x00esc\x1b[31mbell\x07",
    b"<style>*{display:none}</style><!--",
    b"\xff\xfe\xed\xa0\x80",
    b"]]><?xml &lt;",
)


class Elements(HTMLParser):
    """Which elements, attributes and links a page has, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.others: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes.update(name for name, _ in attrs)
        self.links.extend(value or "" for name, value in attrs if name in ("href", "src"))
        self.ids.extend(value or "" for name, value in attrs if name == "id")
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def check_is_inert(text: str) -> Elements:
    """Nothing but our own elements and attributes, links into the page alone, and no character that cannot be seen."""
    found = Elements(text)
    assert set(found.elements) <= set(ELEMENTS.split()), found.elements
    assert found.attributes <= set(ATTRIBUTES.split()), found.attributes
    assert all(link == "data:," or link.startswith("#") for link in found.links), found.links
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert found.others == []
    assert found.elements["style"] == 1
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]", text
    )
    return found


def damaged_report(write_cluster: WriteCluster, log: SampleLog) -> Report:
    """Three replicas, one record of replica 2 changed."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    plant("change-record", replicas["2"], PARTITION, random.Random(3))
    return audit(replicas)


# --- What it says -----------------------------------------------------------------------------------------------------


def test_verdict_names_replica_and_offset_before_anything_else(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Who is wrong, compared with whom, and where, in the first sentence."""
    report = damaged_report(write_cluster, log)
    text = " ".join("".join(check_is_inert(page(report)).text).split())
    offset = report.findings[0].offset
    assert re.search(r"FINDINGS ?Replica 2 holds another record than replicas 1 and 3 at offset \d+ in t-0\.", text)
    assert text.index("FINDINGS") < text.index(f"offset {offset}") < text.index("What was compared")
    assert "Suspected cause: this copy was changed after it was written" in text
    assert "Compared with replica 1, because 2 of 3 replicas hold the same bytes." in text


def test_differing_record_is_marked_beside_the_right_one(write_cluster: WriteCluster, log: SampleLog) -> None:
    """The wrong cell has a sign and a mark, its row a class of its own, and equal copies are called so."""
    report = damaged_report(write_cluster, log)
    text = page(report)
    offset = report.findings[0].offset
    row = re.search(rf'<tr class="here"><th scope="row">{offset}</th>(.*?)</tr>', text)
    assert row is not None
    cells = re.findall(r"<td[^>]*>.*?</td>", row[1])
    assert re.findall('data-replica="(.*?)"', row[1]) == ["replica 2", "replica 1", "replica 3"]
    assert [("≠" in cell, "<mark>" in cell) for cell in cells] == [(True, True), (False, True), (False, False)]
    assert text.count('<tr class="here"><th') == 1
    assert "= same bytes as the reference" in re.sub("<[^>]+>", "", text).replace("&#x27;", "'")


def recompressed(log: SampleLog, value: bytes) -> tuple[dict[str, SampleLog], int]:
    """Three replicas with one lz4 batch of 18 records; a byte of replica 3's is another one, and its CRC is right."""
    base = log.next_offset
    records = [(1_700_000_000_000 + number, b"" if number else None, value * 9, ()) for number in range(18)]
    sound = bytes(encode_batch(records, base_offset=base, leader_epoch=9, codec=Codec.LZ4))
    damaged = bytearray(sound)
    damaged[-2] ^= 0x01
    with_it, without = (log.copy().add(data).append([b"tail"], epoch=9) for data in (sound, with_crc(damaged)))
    return {"1": with_it, "2": with_it, "3": without}, base


def text_of(report: Report) -> str:
    """What a reader sees, with single spaces."""
    return " ".join("".join(check_is_inert(page(report)).text).split())


def test_records_beside_a_cut_are_not_called_missing(write_cluster: WriteCluster) -> None:
    """The lost record's batch begins below where the other log ends: what that one has there is another batch."""
    log = SampleLog().append([b"a", b"b"])
    cut, stale = SampleLog(list(log.batches), 2).append([b"c"], epoch=2), log.append([b"x", b"y", b"z"], epoch=1)
    told = [Event(SEND, "t", 0, b"z"), Event(ACK, "t", 0, b"z", 4)]
    text = text_of(audit(write_cluster(cut, cut, stale), history=History(told)))
    assert text.count("another batch: 2 to 2, epoch 2") == 2
    assert text.count("no record: the log ends at 3") == 4


def test_batch_that_cannot_be_decompressed_is_said_once_with_all_of_its_offsets(
    write_cluster: WriteCluster, log: SampleLog
) -> None:
    """Headline, one cell beside all rows, how many records follow, and two byte numbers that each say what they are."""
    logs, base = recompressed(log, b"word ")
    report = audit(write_cluster(*(SamplePartition(each) for each in logs.values())))
    finding = report.findings[0]
    excerpt = finding.excerpt
    assert [each.check for each in report.findings] == ["log-matching"]
    assert excerpt is not None
    assert (excerpt.differing_bytes, excerpt.differing_in_records) == (5, 1)
    said = text_of(report)
    batch = f"batch of 18 records in t-0 (offsets {base} to {base + 17})"
    assert f"Replica 3 holds a {batch} that cannot be decompressed here; replicas 1 and 2 hold another one" in said
    assert said.count("cannot be decompressed here: ") == 1
    assert "corrupt record batch" not in said
    assert f"6 of the batch's 18 records on replica 1 are shown; behind them follow offsets {base + 6}" in said
    place = finding.position + excerpt.first_difference
    assert f"batch begins at byte {finding.position:,} of the file" in said
    assert f"its records byte {place:,} of the file, {excerpt.first_difference:,} of the batch" in said
    assert "(null)" in said
    assert "(empty)" in said
    assert "1700000000017 (2023-11-14 22:13:20.017 UTC)" in said
    assert f"{report.findings[0].evidence['crc']:#010x} differs from the reference" in said
    assert said.count(", as the header says") == 3
    assert ", not what the header says" not in said


def test_cause_of_other_bytes_in_one_epoch_is_ranked_by_the_bytes(write_cluster: WriteCluster, log: SampleLog) -> None:
    """One changed byte is a changed copy; another append of the same epoch is another leader."""
    logs, _ = recompressed(log, b"word ")
    changed = audit(write_cluster(*(SamplePartition(each) for each in logs.values()))).findings[0]
    assert changed.cause.startswith("this copy was changed after it was written, and its CRC made right (one bit of")
    assert "Much less likely: two brokers led in epoch 9" in changed.cause
    mine, theirs = (
        log.copy().append(values, epoch=9).append([b"tail"], epoch=9)
        for values in ([b"what one leader took"] * 3, [b"and what the other one was sent"] * 2)
    )
    forked = audit(write_cluster(mine, theirs, theirs)).findings[0]
    assert forked.evidence["same_epoch"]
    assert forked.cause.startswith("two brokers led in epoch 9, and each appended a batch of its own")


def test_where_to_look_names_the_files_that_were_read_and_then_the_cause(
    write_cluster: WriteCluster, log: SampleLog
) -> None:
    """Commands that show the place; a right CRC is no disk's work."""
    report = damaged_report(write_cluster, log)
    said = text_of(report)
    place = f"{report.replicas['2']}/t-0"
    assert f"odradek log dump --records {place}/{report.findings[0].file}" in said
    assert f"odradek log diff {report.replicas['1']}/t-0 {place}" in said
    assert "smartctl" not in said  # the CRC is right
    assert "A disk error does not leave a right CRC" in said
    assert "Replace the copy of broker 2: stop it, move t-0 out of its log directory" in said


def test_a_wrong_crc_sends_to_the_disk(write_cluster: WriteCluster, log: SampleLog) -> None:
    """What the CRC covers was changed and the CRC was not: hardware can do that."""
    replicas = write_cluster(*[log] * 3)
    plant("flip-byte", replicas["2"], TopicPartition("t", 0), random.Random(5))
    said = text_of(audit(replicas))
    assert "smartctl" in said
    assert "A disk error does not leave a right CRC" not in said


@pytest.mark.parametrize("lacking", ["12", "123"])
def test_records_that_replicas_lack_alike(write_cluster: WriteCluster, log: SampleLog, lacking: str) -> None:
    """Each is marked in a row of the missing offsets and named, a whole one is told apart, and only where one is
    whole is a copy replaced."""
    gap = log.copy()
    missing = gap.batches.pop(30)
    report = audit(write_cluster(*(gap if name in lacking else log for name in "123")))
    (finding,) = report.findings
    offsets = f"offsets {missing.base_offset} to {missing.last_offset} in t-0"
    said = text_of(report)
    if lacking == "123":
        assert headline(finding) == f"All 3 replicas lack {offsets}: none that was read has them."
        assert f"{missing.base_offset} to {missing.last_offset}✗ no record✗ no record✗ no record" in said
        assert "no copy mends another" in said
        assert "move t-0 out of its log directory" not in said
    else:
        assert headline(finding) == f"Replicas 1 and 2 lack {offsets}; replica 3 has them."
        assert finding.excerpt is not None
        (whole,) = [side.batch for side in finding.excerpt.sides if side.batch is not None]
        assert said.count("≠ no record") == 2 * len(whole.records)
        assert "Only replica 3 is right at the place of the finding" in said
        assert said.index("Check that broker 3 leads") < said.index("Replace the copy of broker 1: stop it")
    assert said.count("the finding is about this copy") >= len(lacking)
    assert "another batch" not in said
    assert "no file" not in said


def test_next_step_after_two_histories_is_to_look_at_the_elections(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Records of an older epoch where a newer one has others: no disk is suspected."""
    old = log.copy().append([b"old"], epoch=4)
    new = log.copy().append([b"new"], epoch=5)
    said = text_of(audit(write_cluster(SamplePartition(old, high_watermark=old.next_offset), new)))
    assert "Look at the elections around leader epoch 4" in said
    assert "smartctl" not in said


def test_nobody_is_told_to_replace_a_copy_that_may_be_the_right_one(
    write_cluster: WriteCluster, log: SampleLog
) -> None:
    """Two copies of one epoch without a majority: the page says so instead."""
    undecided = audit(write_cluster(*(SamplePartition(each) for each in list(recompressed(log, b"x")[0].values())[1:])))
    said = text_of(undecided)
    assert "one of the copies was changed" in said
    assert "nothing says which copy is right" in said
    assert "move t-0" not in said


def test_numbers_add_up_and_the_bound_names_its_source(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Copies compared and not compared, whose checkpoint gives the bound, and no table of what was owed by nobody."""
    marks = (log.next_offset, 7, 7)
    report = audit(write_cluster(*(SamplePartition(log, high_watermark=mark) for mark in marks)))
    said = text_of(report)
    assert "All replicas together hold 780 copies of records" in said
    assert "The other 260 copies of records are that log's own" in said
    assert f"ound {log.next_offset}: the largest high watermark, in the checkpoint of replica 1;" in said
    assert "What was owed to acknowledged records: it hangs on the cluster's settings" in said
    assert "LEO, log end offset" in said
    assert "power loss" not in said
    report.configuration = {"acks": "all"}
    assert "power loss" in text_of(report)


def test_agreeing_replicas_say_what_was_not_looked_at(write_cluster: WriteCluster, log: SampleLog) -> None:
    """SURVIVED says what was compared; without a history it says what that leaves open."""
    text = " ".join("".join(Elements(page(audit(write_cluster(log, log, log)))).text).split())
    assert "SURVIVED" in text
    assert "520 copies of records compared on 3 replicas: all are equal." in text
    assert "No history of clients was given" in text


def test_missing_replica_and_inconclusive_run_are_said(write_cluster: WriteCluster, log: SampleLog) -> None:
    """A partition that one broker does not have, and an audit that compared nothing."""
    other = TopicPartition("u", 1)
    replicas = write_cluster(
        {PARTITION: SamplePartition(log)}, {PARTITION: SamplePartition(log), other: SamplePartition(log)}
    )
    text = " ".join("".join(Elements(page(audit(replicas))).text).split())
    assert "No directory, so nothing to compare: u-1 on replica 1." in text
    alone = " ".join("".join(Elements(page(audit({"1": replicas["1"]}))).text).split())
    assert "INCONCLUSIVE" in alone
    assert "Too little was compared" in alone


def test_page_is_the_same_for_the_same_report(write_cluster: WriteCluster, log: SampleLog) -> None:
    """No clock, no chance, no order of a set."""
    report = damaged_report(write_cluster, log)
    assert page(report) == page(replace(report))


def test_policy_allows_this_style_sheet_and_nothing_else(write_cluster: WriteCluster, log: SampleLog) -> None:
    """The content security policy names the sheet's hash, and neither script nor network."""
    text = page(audit(write_cluster(log, log)))
    sheet = re.search("<style>(.*?)</style>", text, re.DOTALL)
    policy = re.search('http-equiv="Content-Security-Policy" content="(.*?)"', text)
    assert sheet is not None
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    assert policy[1].replace("&#39;", "'").split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{digest}'", "img-src data:", "base-uri 'none'", "form-action 'none'"
    ]  # fmt: skip
    assert "url(" not in sheet[1]
    assert "style=" not in text


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({}, 5),
        ({"acks": "all"}, 3),
        ({"acks": "-1", "min.insync.replicas": "3", "odradek.fsync": "never"}, 1),
        ({"acks": "1", "min.insync.replicas": "2"}, 1),
        ({"odradek.fsync": "before-ack"}, 3),
    ],
)
def test_configuration_selects_what_was_owed(configuration: dict[str, str], expected: int) -> None:
    """What is not known leaves all of its rows standing."""
    assert len(rows_for(configuration)) == expected


# --- Hostile content --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", HOSTILE)
@pytest.mark.parametrize("kind", ["log-matching", "crc-mismatch"])
def test_hostile_records_add_no_element(write_cluster: WriteCluster, content: bytes, kind: str) -> None:
    """Tags, quotes, control characters and reversed text in values are shown as text and escapes."""
    log = SampleLog().append([b"ok-0" + content, content, b"ok-2"]).append([b"tail"])
    bad = SampleLog().append([b"ok-0" + content, content + b"!", b"ok-2"]).append([b"tail"])
    replicas = write_cluster(log, bad if kind == "log-matching" else log, log)
    if kind == "crc-mismatch":
        path = replicas["2"] / "t-0" / f"{0:020d}.log"
        flip_bit(path, path.read_bytes().index(content) + len(content) - 1)
    report = audit(replicas)
    assert [finding.check for finding in report.findings] == [kind]
    check_is_inert(page(report))


def test_hostile_names_and_history_add_no_element(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """Topics, clients and values of a history, replica names and paths: the same door."""
    name = "<script>alert(1)</script>\u202e\x00\"'"
    replicas = write_cluster(log, log)
    (tmp_path / "<b>").mkdir()
    (tmp_path / "b1").rename(tmp_path / "<b>" / "b1")
    history = History(
        [
            Event(SEND, "t", 0, b"<script>gone</script>", client=name),
            Event(ACK, "t", 0, b"<script>gone</script>", 3, client=name),
            Event(SEND, name, 0, b"x", client=name),
            Event(ACK, name, 0, b"x", 0, client=name),
        ]
    )
    report = audit({name: tmp_path / "<b>" / "b1", "2": replicas["2"]}, history=history)
    report.configuration = {name: name}
    found = check_is_inert(page(report))
    assert {finding.check for finding in report.findings} >= {"acknowledged-lost"}
    assert "<script>alert(1)</script>\\u202e\\x00" in "".join(found.text)


@pytest.mark.parametrize("what", ["key", "value", "header"])
def test_megabyte_of_anything_is_cut(write_cluster: WriteCluster, what: str) -> None:
    """A page stays small whatever a record holds, and says how much was left out."""

    def log(last: bytes) -> SampleLog:
        large = b"<" * (1 << 20) + last
        key, value = large if what == "key" else b"k", large if what == "value" else b"v"
        headers = ((large.decode(), b"h"),) if what == "header" else ()
        data = encode_batch([(1, key, value, headers)], base_offset=0, leader_epoch=0)
        return SampleLog().add(data)

    report = audit(write_cluster(log(b"a"), log(b"b")))
    assert [finding.check for finding in report.findings] == ["log-matching"]
    assert len(report.findings[0].to_json()) < 20_000
    text = page(report)
    check_is_inert(text)
    assert len(text) < 60_000
    assert ("headers differ" if what == "header" else "1,048,552 bytes, then …") in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("a\x00b", "a\\x00b"),
        ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("ünïcödé 漢字", "ünïcödé 漢字"),
        ("\n\t\r", "\\x0a\\x09\\x0d"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_cannot_be_seen_is_written_as_an_escape(given: str, expected: str) -> None:
    """Control, format, private, surrogate and unassigned characters; letters of all scripts stay."""
    assert plain(given) == expected


def test_only_our_own_markup_goes_in_as_it_is() -> None:
    """Content and attributes are escaped; what a tag made is not escaped again."""
    made = tag("p", "<b>", tag("code", "&"), title='"<>', hidden=None, open=True, class_="x")
    assert made == '<p title="&quot;&lt;&gt;" open class="x">&lt;b&gt;<code>&amp;</code></p>'
    assert shown(made) is made
    assert isinstance(made, SafeMarkup)


# --- Size -------------------------------------------------------------------------------------------------------------


def test_ten_thousand_findings_make_a_small_page(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Some of each check are shown whole, the rest are counted, and it says where all of them are."""
    report = damaged_report(write_cluster, log)
    example = report.findings[0]
    names = sorted(CHECKS)
    report.findings = [
        replace(example, check=names[number % len(names)], partition=number % 97, offset=number, end_offset=number + 1)
        for number in range(10_000)
    ]
    text = page(report)
    assert len(text.encode()) < 3_000_000
    found = check_is_inert(text)
    assert found.elements["article"] == 60
    said = "".join(found.text)
    assert "9,940 more findings" in said
    assert "All of them are in findings.jsonl and findings.parquet" in said


def test_files_are_written_and_read_back(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """Findings come back from JSON with their excerpts; without the page there is no page."""
    report = damaged_report(write_cluster, log)
    assert "report.html" in write_report(report, tmp_path / "out")
    lines = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    assert [Finding.from_json(line) for line in lines] == report.findings
    assert report.findings[0].excerpt is not None
    write_report(report, tmp_path / "bare", html=False)
    assert not (tmp_path / "bare" / "report.html").exists()


def test_records_lost_in_a_row_are_told_as_one_loss(write_cluster: WriteCluster) -> None:
    """Three lost records are one line and one card; the files keep three findings, and the numbers say three."""
    short = log_of(VALUES[0])
    report = audit(write_cluster(short, short), history=History(told(ACKS_ALL, values=VALUES[:4])))
    assert [finding.check for finding in report.findings] == ["acknowledged-lost"] * 3
    found = check_is_inert(page(report))
    assert found.elements["article"] == 1
    said = " ".join("".join(found.text).split())
    assert "3 records acknowledged with acks=all at offsets 1 to 3 in t-0 are lost" in said
    assert "3 findings in 1 partition." in said


@pytest.mark.parametrize("seed", seeds(40, every_day=4, slow=20))
def test_any_damage_ends_in_a_sound_page(write_cluster: WriteCluster, seed: int) -> None:
    """Bytes cut, repeated, zeroed or replaced by noise in any file: a page, and nothing but our markup."""
    chance = random.Random(seed)
    log = SampleLog().fill(12, epoch=0).fill(12, epoch=2)
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=7000)] * 3)
    files = sorted(path for root in replicas.values() for path in root.rglob("*") if path.is_file())
    for path in chance.choices(files, k=chance.randint(1, 9)):
        data = path.read_bytes()
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        noise = chance.choice((b"", bytes(end - at), chance.randbytes(end - at), b"<script>" * 9, data[at:end] * 2))
        path.write_bytes(data[:at] + noise + data[end:])
    check_is_inert(page(audit(replicas)))


def test_the_verdict_says_what_was_not_compared(write_cluster: WriteCluster) -> None:
    """Beside what was: offsets that no checkpoint calls replicated, and those that one replica alone has."""
    log = SampleLog().fill(10)
    whole, short = SamplePartition(log, high_watermark=20), SamplePartition(log.up_to(32), high_watermark=20)
    assert verdict_sentences(audit(write_cluster(log, log)))[-1].endswith("all are equal.")
    report = audit(write_cluster(whole, short))
    said = "all are equal. Not compared: 20 offsets above the bounds, 8 offsets that one replica alone has."
    assert verdict_sentences(report)[-1].endswith(said)


def test_what_only_one_side_of_two_leaders_has_is_read_out_first(write_cluster: WriteCluster) -> None:
    """The replica that is to be replaced may hold the only copy of acknowledged records: which one, and where."""
    old = SampleLog().fill(2, epoch=0).fill(2, epoch=0, name="old")
    new = SampleLog().fill(2, epoch=0).fill(2, epoch=1, name="new")
    text = text_of(audit(write_cluster(new, new, old), settled=True))
    assert "Replica 3 has at offsets 8 to 15 what replica 1 does not: it may be the only copy of acknowledged" in text
    assert text.index("--records --json") < text.index("Replace the copy of broker ")
    changed = write_cluster(new, new, new)
    damage = plant("change-record", changed["3"], TopicPartition("t", 0), random.Random(2))
    assert "only copy of acknowledged" not in page(audit({name: changed[name] for name in ("1", "2", "3")})), damage


def test_the_damaged_record_is_shown_and_marked_where_it_is_the_last_of_its_batch(write_cluster: WriteCluster) -> None:
    """The finding is of the whole batch, whose CRC is wrong; the changed byte is what a reader looks for."""
    log = SampleLog().fill(3).append([b"record %d" % number for number in range(12)]).fill(3)
    replicas = write_cluster(log, log, log)
    (segment,) = (replicas["3"] / "t-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"record 11", b"record q1"))
    report = audit(replicas)
    (finding,) = report.findings
    assert (finding.check, finding.replica, finding.end_offset - finding.offset) == ("crc-mismatch", "3", 12)
    text = page(report)
    last = finding.end_offset - 1
    assert re.findall(r'<tr class="here"><th scope="row">(\d+)</th>', text) == [str(last)]
    assert "record <mark>q</mark>1" in text
    assert f"before them stand offsets {finding.offset} to {last - 3} (9 more)." in text_of(report)


def test_no_record_is_marked_where_the_header_alone_differs(write_cluster: WriteCluster) -> None:
    """A mark on one of several equal records would look like the damage."""
    log = SampleLog().fill(9)
    replicas = write_cluster(log, log, log)
    (segment,) = (replicas["3"] / "t-0").glob("*.log")
    flip_bit(segment, sum(len(each.data) for each in log.batches[:4]) + CRC_START - 1)
    report = audit(replicas)
    assert [each.check for each in report.findings] == ["crc-mismatch"]
    assert '<tr class="here"><th' not in page(report)


@pytest.mark.parametrize("batches", [1, 4])
def test_how_much_is_missing_is_said_in_batches_records_and_bytes(write_cluster: WriteCluster, batches: int) -> None:
    """And how many of the missing records are not shown, of all of them and not of the first batch."""
    whole = SampleLog().fill(40)
    gap = SampleLog([each for at, each in enumerate(whole.batches) if not 10 <= at < 10 + batches], whole.next_offset)
    report = audit(write_cluster(gap, gap, whole))
    (finding,) = report.findings
    missing = whole.batches[10 : 10 + batches]
    size, records = sum(len(each.data) for each in missing), finding.end_offset - finding.offset
    said = "1 batch" if batches == 1 else f"{batches} batches"
    was = "was" if batches == 1 else "were"
    assert finding.cause.startswith(f"{said} ({size:,} bytes) {was} removed from the file, or never written to it")
    assert Finding.from_json(finding.to_json()) == finding
    if batches > 1:
        shown_to = missing[0].last_offset + 1
        rest = f"offsets {shown_to} to {finding.end_offset - 1} ({finding.end_offset - shown_to} more)."
        told = (
            f"{shown_to - finding.offset} of the {records} records ({said}) on replica 3 are shown; behind them follow"
        )
        assert f"{told} {rest}" in text_of(report)
