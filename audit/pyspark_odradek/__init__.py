"""Lets Spark find the data source `kafka-log` by itself.

Spark looks for installed packages whose names begin with `pyspark_` and takes their class `DefaultSource`. So
wherever the distribution is installed, `spark.read.format("kafka-log")` needs no import and no registration.
"""

from odradek_audit.spark.datasource import KafkaLogDataSource


class DefaultSource(KafkaLogDataSource):
    """The data source under the name that Spark looks for."""
