"""Noontide: a distributed job scheduler for Python shops that run Kafka."""
