"""Search for the fault that breaks a test.

*model*: places, faults, plans, runs, and the protocol of runners · *tape*: facts about the exchanges of a run ·
*places*: exchanges that runs have in common · *faults*: the table `faults.yaml` · *plan*: plans as rules, text and
files · *order*: the next plan · *result*: outcomes, signatures, findings · *reruns*: confirming and shrinking ·
*database*: findings on disk, and the baseline · *explorer*: all phases · *report*, *page*: reports · *runs*: runs as
processes · *fork_session*: one test, as pytest and the command line explore it · *pytest_plugin*, *pytest_session*:
`pytest --kproxy-explore`. The command is `kproxy/cli/explore.py`.
"""
