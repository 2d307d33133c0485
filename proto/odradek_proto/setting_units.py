"""What the help of a command says of the units of settings: here once for the commands of client and broker."""

from typing import Final

WITH_UNITS: Final = "Times end in .ms, sizes in .bytes; 30s, 7d, 64MiB are taken too: docs/configuration.md."
"""For the settings of a broker, from its file, the environment and the command line."""
WITHOUT_UNITS: Final = "Times (.ms) and sizes (.bytes) are plain numbers: docs/configuration.md."
"""For what Kafka's protocol carries: the settings of topics, and those that are changed while the cluster runs."""
