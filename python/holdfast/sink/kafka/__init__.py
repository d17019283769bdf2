"""The Kafka sink.

From the outside in: `sink` (the interface), `fitness` (checks at start), `transactional_writer` and `plain_writer` (the
tasks), `sending` (a producer), `layout` and `json_text` (rows to records), `options` (data). What ends transactions is
in `holdfast.kafka`, since the command line does so too.
"""

from holdfast.sink.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
