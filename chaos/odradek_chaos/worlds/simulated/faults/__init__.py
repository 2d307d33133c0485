"""The faults of the simulated world, one file per family; `kinds` names them all, `catalogue` makes them."""
