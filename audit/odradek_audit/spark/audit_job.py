"""What spark-submit is given: `spark-submit --master MASTER audit_job.py --replica 1=s3://copies/b1 ... --out DIR`.

`odradek audit package` puts this file beside an archive of the audit and what it needs besides Python and pyspark. Here
only the standard library is imported, for on the driver's machine there may be nothing else: the archive is unpacked
beside, Spark is told to give it to every executor, and then the job runs (`odradek_audit.spark.job`). Where odradek is
installed on every machine, as in its own image, no archive is needed and none is looked for.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

ARCHIVE = "odradek_audit.tar.gz"
UNPACKED = "odradek"
"""The directory that Spark unpacks the archive to, in an executor's working directory: `--archives ...#odradek`."""
MANIFEST = "odradek-package.json"


def prepare() -> tuple[str, str]:
    """Make `odradek_audit` importable here; returns the archive for Spark (empty: it needs none, or has it) and the
    PYTHONPATH of its workers."""
    archive = Path(__file__).absolute().parent / ARCHIVE
    here = Path(UNPACKED).absolute()
    if (here / MANIFEST).is_file():  # the driver runs on the cluster, beside what --archives brought
        _use(here)
        return "", UNPACKED
    if not archive.is_file():
        return "", ""
    folder = Path(tempfile.mkdtemp(prefix="odradek-audit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    _use(folder)
    return f"{archive}#{UNPACKED}", os.pathsep.join([UNPACKED, str(folder)])


def _use(folder: Path) -> None:
    made_for = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    ours = {"python": ".".join(map(str, sys.version_info[:2])), "machine": f"{sys.platform}-{platform.machine()}"}
    if any(made_for[name] != ours[name] for name in ours):
        sys.exit(
            f"audit_job.py: {ARCHIVE} was made for Python {made_for['python']} on {made_for['machine']}, and this is "
            f"Python {ours['python']} on {ours['machine']}: run `odradek audit package` with the executors' Python"
        )
    sys.path.insert(0, str(folder))


def main() -> int:
    """Run the job and return its exit code."""
    archive, python_path = prepare()
    try:
        from odradek_audit.spark import job
    except ModuleNotFoundError as error:
        sys.exit(f"audit_job.py: {error}; keep {ARCHIVE}, which `odradek audit package` wrote, beside this file")
    return job.main(archive=archive, python_path=python_path)


if __name__ == "__main__":
    sys.exit(main())
