"""OpenTelemetry: finished spans go out over OTLP, when somebody asked for it."""
