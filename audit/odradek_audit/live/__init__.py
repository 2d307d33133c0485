"""The audit of a running cluster over Kafka's wire protocol: `wire` speaks it, `cluster` asks the brokers, `partition`
compares the replicas of one partition, `digests` remembers what was compared, `run` goes through all of them."""
