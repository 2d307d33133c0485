"""What runs the checks: all of one partition (`partition`), in two passes, on one machine (`local`)."""
