"""The command `odradek`: what people type.

`__main__.py` begins, `main.py` runs a command line, `tree.py` finds the subcommands of all packages.
"""
