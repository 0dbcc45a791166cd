"""Definitions to start from, with comments for people: `lively.yaml` runs at once, `everyday.yaml` is real life."""
