"""What must hold at every moment of a run, each invariant a class with a name (docs/simulation.md has the table)."""
