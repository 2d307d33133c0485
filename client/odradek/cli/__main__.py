"""Where the process begins: for `odradek`, and for `python -m odradek.cli`.

Rule of this module. It imports nothing before it can be interrupted: to load the rest takes a second on a busy
machine, and whoever presses Ctrl-C meanwhile wants no traceback.
"""

import sys


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    try:
        from odradek.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # as `INTERRUPTED` of failures.py, which may not have been loaded


if __name__ == "__main__":
    sys.exit(main())
