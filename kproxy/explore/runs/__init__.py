"""Runs of a test, each in a process and a world of its own, many side by side.

*messages*: what the explorer, the process that forks and its children tell each other · *fork_server*: the process that
forks a child for each run, and kills it when it hangs · *child*: a child's answer, and the watchdog that gives it
before the end · *fork_runner*: the explorer's side of it, a `Runner` · *world*: proxy and cluster of one run ·
*pytest_runs*, *command_runs*: a run of a test, and of a command.
"""
