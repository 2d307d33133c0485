"""The command `odradek audit`."""
