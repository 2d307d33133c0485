"""Files and directories that this process may not read, also where it is root's."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CAPABILITIES_VERSION = 0x20080522
PASS_OVER_PERMISSIONS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("thread", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def unreadable(*paths: Path, mode: int = 0) -> Iterator[None]:
    """Nobody may read `paths`. Root's power to do so all the same is laid down by this thread, and taken up again.

    Processes that are started meanwhile have it; those that are forked have not.
    """
    modes = [(path, path.stat().st_mode) for path in paths]
    with _without_power():
        try:
            for path in paths:
                path.chmod(mode)
            if any(os.access(path, os.R_OK, effective_ids=True) for path in paths if not mode):
                pytest.skip("this user reads what nobody may read")
            yield
        finally:
            for path, before in modes:
                path.chmod(before)


@contextmanager
def _without_power() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root reads everything here")
    before = _capabilities()
    try:
        lowered = (_Sets * 2)(*before)
        lowered[0].effective &= ~PASS_OVER_PERMISSIONS
        _call("capset", lowered)
        yield
    finally:
        _call("capset", before)


def _capabilities() -> ctypes.Array[_Sets]:
    sets = (_Sets * 2)()
    _call("capget", sets)
    return sets


def _call(name: str, sets: ctypes.Array[_Sets]) -> None:
    header = _Header(CAPABILITIES_VERSION, 0)
    if getattr(ctypes.CDLL(None, use_errno=True), name)(ctypes.byref(header), sets):
        raise OSError(ctypes.get_errno(), name)
