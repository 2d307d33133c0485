"""What Spark does with Kafka through its own connector, in a process of its own: batches, by time, a stream, a sink.

    python -m tests.interop.spark_story BOOTSTRAP SOURCE SINK MIDDLE_MS DIRECTORY JARS

`SOURCE` has records before and from `MIDDLE_MS` on, `SINK` is empty; `JARS` are the connector's, comma-separated.
Prints one JSON object with what was counted.
"""

from __future__ import annotations

import json
import sys

from odradek_audit.spark.launch import JAVA_OPTIONS
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.network.timeout": "300s",  # a busy machine
    "spark.executor.heartbeatInterval": "60s",
}
PER_TRIGGER = 50  # so that a stream takes several micro-batches


def tell(bootstrap: str, source: str, sink: str, middle_ms: int, directory: str, jars: str) -> dict[str, object]:
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def read(**options: str) -> DataFrame:
        wanted = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
        if "startingTimestamp" in options:
            del wanted["startingOffsets"]
        return spark.read.format("kafka").options(**wanted).load()

    def values(topic: str) -> list[str]:
        rows = read(subscribe=topic).select(col("value").cast("string")).collect()
        return sorted(row.value for row in rows)

    told: dict[str, object] = {"batch": values(source)}
    later = read(subscribe=source, startingTimestamp=str(middle_ms))
    told["from the middle"] = sorted(row.value for row in later.select(col("value").cast("string")).collect())
    ends = {source: {str(partition): 5 for partition in range(3)}}
    told["by offsets"] = read(subscribe=source, endingOffsets=json.dumps(ends)).count()
    told["by pattern"] = read(subscribePattern=f"{source[:-1]}.").count()
    written = {"kafka.bootstrap.servers": bootstrap, "topic": sink}
    read(subscribe=source).selectExpr("key", "value").write.format("kafka").options(**written).save()
    told["sink after a batch"] = values(sink)
    stream = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"})
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .load()
        .selectExpr("key", "concat('streamed ', cast(value as string)) as value")
        .writeStream.format("kafka")
        .options(**written)
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    told["micro-batches"] = len([each for each in stream.recentProgress if each.numInputRows])
    told["sink after a stream"] = values(sink)
    spark.stop()
    return told


if __name__ == "__main__":
    bootstrap, source, sink, middle_ms, directory, jars = sys.argv[1:]
    print(json.dumps(tell(bootstrap, source, sink, int(middle_ms), directory, jars)))
