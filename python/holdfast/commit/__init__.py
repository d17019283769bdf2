"""The commit protocol of exactly-once output, without Spark: what a sink is, and the record that commits a batch."""
