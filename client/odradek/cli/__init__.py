"""The command `odradek`: what people type. `main.py` starts it, `tree.py` finds the subcommands of all packages."""
