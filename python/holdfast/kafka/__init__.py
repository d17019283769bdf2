"""Kafka, as source, sink and command line share it: clients and their configuration, transactions by the wire."""
