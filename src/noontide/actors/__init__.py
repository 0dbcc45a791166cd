"""The actors: what is due, and what follows from it.

`partition` decides, `slot` runs the cycle (gather, decide, commit, apply, answer), `runner` loops, `supervisor` owns
the slots of a process.
Reading order: partition, admission (requests), firing (occurrences), hand_out (where runs go), effects, slot, restore.
"""
