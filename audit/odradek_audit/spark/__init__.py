"""The audit on Spark: the engine, the job for spark-submit, the data source `kafka-log`, and how a JVM is started."""
