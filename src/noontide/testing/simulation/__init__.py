"""The whole cluster in one process, in virtual time, with one seed that chooses everything.

    ./scripts/simulate --seeds 500        many seeds, on all cores
    ./scripts/simulate --seed 17          one of them again, with the story of what happened
    ./scripts/simulate --bugs             does it find the bugs that are planted on purpose?

The schedulers' runners, supervisors and slots and the workers' runtime and desk are the real ones. What is around them
is made here: an event loop that skips over time (`loop`), a broker in memory with a network that delays, loses and
repeats (`ports`), groups (`groups`), people (`people`), and whoever breaks things (`trouble`). What came of it is
judged by code of its own (`witness`, `rest`), which reads only what the log shows to everybody.
"""
