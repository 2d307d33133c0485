"""Where the process begins: for `odradek`, and for `python -m odradek.cli`.

Rule of this module. It imports nothing before it can be interrupted: to load the rest takes a second on a busy
machine, and whoever presses Ctrl-C meanwhile wants no traceback.
"""

import os
import sys

INTERRUPTED = 130  # as in command_line.py, which may not have been loaded


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    sys.unraisablehook = end_if_interrupted
    try:
        from odradek.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def end_if_interrupted(unraisable: "sys.UnraisableHookArgs") -> None:
    """End the process on a Ctrl-C that fell into a finalizer or a callback of a weak reference.

    No caller would ever see that exception: Python prints it and goes on. The import system has such callbacks.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.exit(main())
