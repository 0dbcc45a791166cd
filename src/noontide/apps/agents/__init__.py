"""The agents: a Faust application that reads committed executions, tells people what they asked for, and counts."""
