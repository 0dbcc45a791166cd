"""`noontide demo`: `stage` starts what is needed, `show` lets people watch it, `score` says how it went."""
