"""The disks of all simulated machines as one disk for the audit: `/b1/data` is `/data` on machine `b1`."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Inode


class ClusterDisk:
    """`odradek_audit.inputs.disk.Disk` over simulated disks. It sees what a reader sees now, without injected
    faults."""

    def __init__(self, machines: Mapping[str, SimDisk]) -> None:
        self.machines = machines

    def list(self, path: str) -> list[str]:
        disk, inner = self._disk_of(path)
        return sorted(disk.directory(inner).entries)

    def is_dir(self, path: str) -> bool:
        disk, inner = self._disk_of(path)
        return isinstance(disk.find(inner), Directory)

    def is_file(self, path: str) -> bool:
        disk, inner = self._disk_of(path)
        return isinstance(disk.find(inner), Inode)

    def size(self, path: str) -> int:
        disk, inner = self._disk_of(path)
        return len(disk.file(inner).data)

    def read(self, path: str, position: int, length: int) -> bytes:
        disk, inner = self._disk_of(path)
        return bytes(memoryview(disk.file(inner).data)[position : position + length])

    def _disk_of(self, path: str) -> tuple[SimDisk, str]:
        machine, _, inner = path.lstrip("/").partition("/")
        try:
            return self.machines[machine], "/" + inner
        except KeyError:
            raise FileNotFoundError(path) from None
