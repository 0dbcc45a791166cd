"""The history in PostgreSQL: its table and partitions, reading it, and a server of our own for `noontide dev`."""
