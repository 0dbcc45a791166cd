"""A real Apache Kafka on this machine, without Docker and without an installed Java or Maven.

`EmbeddedKafka` runs one to a few KRaft brokers as child processes on a data folder; `kafka_provider` gives a
bootstrap address from wherever the environment says it comes from. How to use both: docs/how-to/embedded-broker.md.

Modules, in the order a start goes through them: `jars` (the class path), `java` (the runtime), `folder` (who may use
the data, remembered ports), `settings` (broker and JVM settings), `process` (one JVM), `readiness` (when it may be
used), `broker` (the cluster), `provider` (the choice of where Kafka comes from).
"""

from noontide.adapters.kafka.embedded.broker import EmbeddedKafka
from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError
from noontide.adapters.kafka.embedded.provider import kafka_provider

__all__ = ["EmbeddedKafka", "EmbeddedKafkaError", "kafka_provider"]
