"""How a broker's process logs: time, level, broker and logger of each line, as text or JSON, and bounded.

Everything that is bounded is bounded here. A warning or an error that is said again within a minute is left out, and so
are the lines of one sentence beyond the twentieth in a minute; the next one says how many there were.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler

from odradek_broker.config.log_levels import LOGGERS, NAMES, ROOT, parse_levels, set_levels
from odradek_broker.config.settings import BrokerSettings

PERIOD_S = 60
MOST_OF_A_SENTENCE = 20
MOST_REMEMBERED = 1_000  # sentences and lines of the last minute; beyond that the memory begins anew


@dataclass(slots=True)
class _Said:
    """Since when, how often, and how many of them were left out."""

    since: float
    times: int = 0
    left_out: int = 0


class Repetitions(logging.Filter):
    """Leaves out what was said a moment ago, by the times of the records."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, ...], _Said] = {}
        self._lock = threading.Lock()  # threads of the pool log, too

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not fit: the handler reports that, and raises nothing
            return True
        with self._lock:
            return self._passes(record, message)

    def _passes(self, record: logging.LogRecord, message: str) -> bool:
        if len(self._said) > MOST_REMEMBERED:
            self._said.clear()
        sentence = self._of((record.name, record.msg), record.created)
        line = self._of((record.name, record.msg, message), record.created)
        repeated = line.times and record.levelno >= logging.WARNING
        if repeated or sentence.times >= MOST_OF_A_SENTENCE:
            sentence.left_out += 1
            return False
        line.times += 1
        sentence.times += 1
        if sentence.left_out:
            record.left_out, sentence.left_out = sentence.left_out, 0
        return True

    def _of(self, key: tuple[str, ...], now: float) -> _Said:
        said = self._said.get(key)
        if said is None or not 0 <= now - said.since < PERIOD_S:
            said = self._said[key] = _Said(now, left_out=0 if said is None else said.left_out)
        return said


class TextFormatter(logging.Formatter):
    """`2026-11-23T07:41:40.123Z INFO broker 1 odradek.server: node 1 is ready`."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def formatMessage(self, record: logging.LogRecord) -> str:
        broker = getattr(record, "broker", self._broker_id)
        return f"{_utc(record.created)} {_level(record)} broker {broker} {record.name}: {_message(record)}"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, broker, logger, message; of an event its name and facts; a traceback as text."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record.created),
            "level": _level(record),
            "broker": getattr(record, "broker", self._broker_id),
            "logger": record.name,
            "message": _message(record),
        }
        for name in ("event", "facts"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LogFileUnusable(Exception):
    """`odradek.log.file` cannot be written."""


FORMATS = {"text": TextFormatter, "json": JsonFormatter}


def _utc(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03}Z"


def _level(record: logging.LogRecord) -> str:
    return NAMES.get(record.levelno, record.levelname)


def _message(record: logging.LogRecord) -> str:
    left_out = getattr(record, "left_out", 0)
    return record.getMessage() + (f" (left out before: {left_out} of these)" if left_out else "")


@contextmanager
def configured(settings: BrokerSettings) -> Iterator[None]:
    """Log as the settings say, until the end of the block. Raises `LogFileUnusable`."""
    root, named = logging.getLogger(), [logging.getLogger(name) for name in (ROOT, *LOGGERS)]
    handler = _handler(settings)
    handler.setFormatter(FORMATS[settings.odradek_log_format](settings.node_id))
    handler.addFilter(Repetitions())
    before = root.handlers, [logger.level for logger in named]
    root.handlers = [handler]
    set_levels({ROOT: "INFO", **parse_levels(settings.odradek_log_level)})
    try:
        yield
    finally:
        root.handlers = before[0]
        for logger, level in zip(named, before[1], strict=True):
            logger.setLevel(level)
        handler.close()


def _handler(settings: BrokerSettings) -> logging.Handler:
    """Standard error, or a file of which one older one is kept when it has grown too large."""
    if not settings.odradek_log_file:
        return logging.StreamHandler(sys.stderr)
    size = settings.odradek_log_file_max_bytes
    try:
        return RotatingFileHandler(settings.odradek_log_file, maxBytes=size, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise LogFileUnusable(
            f"odradek.log.file={settings.odradek_log_file}: {error.strerror}; name a file that the broker may write"
        ) from error
