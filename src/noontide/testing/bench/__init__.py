"""Benches of the product as it is shipped: a real broker, a scheduler process, and consumers that measure.

    __main__   the command line            report    what is printed
    stage      broker, topics, scheduler   measure   processor time and memory of processes
    load       definitions and their sending
    arrivals   consumers in processes of their own, which note when records come
    warmup     work before what is measured
    tally      which runs a topic holds: lost, doubled, foreign
    wave, lag, enqueue, restore, idle      one bench each

Everything is on one machine, so producer, broker, scheduler and consumer share its cores.
"""
