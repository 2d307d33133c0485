"""The faults of the simulated world, one file per family; `catalogue` finds them all there, and makes them."""
