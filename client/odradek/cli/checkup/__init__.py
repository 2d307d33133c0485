"""The checks of `odradek doctor`: of addresses, of the cluster, and of this machine."""
