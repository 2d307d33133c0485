"""CRC32C (Castagnoli), as Kafka's record batches and snapshots have it, 17 GB/s by the processor's own instruction.

Importing the `crc32c` package brings in its command line and `importlib.metadata`: 24 ms of every process's start.
Only the extension module inside of it is needed, so that is loaded by itself; where it lies elsewhere, the package is.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Crc32c = Callable[..., int]
"""`crc32c(buffer, crc=0)`: the checksum of a buffer (no copy is made), going on from `crc`."""


def _load() -> Crc32c:
    package = find_spec("crc32c")  # finds, does not run
    locations = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("crc32c._crc32c", locations) if locations else None
    if extension is None or extension.loader is None:
        import crc32c as whole_package

        return whole_package.crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c: Crc32c = _load()
