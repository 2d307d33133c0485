"""The broker's part of the command `odradek`: run a node, show its settings, read its files."""
