"""The internal port of a scheduler process: what its slots know, for API nodes.

`wire` is what is said, `queries` answers from the index, `board` passes verdicts on, `recents` keeps the last
executions, `server` serves all of it on a thread of its own.
"""
