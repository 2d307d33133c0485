"""The audit: reads the log directories of a cluster's replicas and says, with evidence, where they disagree.

It imports `odradek_proto` alone and never the broker: an auditor does not borrow the accused's books. The checks are
pure functions (`odradek_audit.checks`); two engines feed them, plain Python (`odradek_audit.engine.local`) and Spark
(`odradek_audit.spark.engine`), and both report the same findings.
"""
