"""Writes odradek.sync's twins of the administrator's methods: a row for each coroutine (`make proto`).

python ops/proto/blocking.py client/odradek/sync/admin_methods.py
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from odradek.administration.admin import Admin

HEADER = '''"""The methods of `odradek.Admin` without asyncio, one row for each. Written by `make proto`."""

from __future__ import annotations

from odradek.administration.admin import Admin
from odradek.sync.bridge import Facade, blocking


class AdminMethods(Facade):
'''
names = {
    name
    for name, _ in inspect.getmembers(Admin, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "start"  # a facade starts by itself
}
rows = [f"    {name} = blocking(Admin.{name})\n" for kind in Admin.__mro__ for name in vars(kind) if name in names]
Path(sys.argv[1]).write_text(HEADER + "".join(rows))
