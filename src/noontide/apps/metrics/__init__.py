"""Metrics for Prometheus: what each process tells, and the small port that serves it."""
