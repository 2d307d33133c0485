"""What every measurement hands back, and the one table into which `python -m bench` puts them."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec.structs import asdict
from odradek_proto.values import Value

PACKAGES = ("odradek", "grpcio", "protobuf", "crc32c", "uvloop", "msgspec")


class Figure(Value, frozen=True):
    """One number. With a floor it is met or not: at most that, or at least that when `at_least`."""

    bench: str
    what: str
    value: float
    unit: str
    floor: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.floor is None:
            return None
        return self.value >= self.floor if self.at_least else self.value <= self.floor


def machine() -> dict[str, str | int | float]:
    """Processor, cores, Python, versions, and how busy the machine was."""
    facts: dict[str, str | int | float] = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def show(figures: list[Figure], *, as_json: bool) -> None:
    facts = machine()
    if as_json:
        rows = [{**asdict(figure), "met": figure.met} for figure in figures]
        print(json.dumps({"machine": facts, "figures": rows}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(table(figures))


def table(figures: list[Figure]) -> str:
    """One line a figure, with its floor and whether it is met."""
    lines = [f"{'bench':<11} {'what':<50} {'figure':>12} {'unit':<9} {'floor':>10}  verdict"]
    for figure in figures:
        floor = "" if figure.floor is None else f"{'>=' if figure.at_least else '<='} {figure.floor:,g}"
        verdict = {None: "", True: "met", False: "NOT MET"}[figure.met]
        lines.append(
            f"{figure.bench:<11} {figure.what:<50} {_number(figure.value):>12} {figure.unit:<9} {floor:>10}  {verdict}"
        )
    return "\n".join(line.rstrip() for line in lines)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
