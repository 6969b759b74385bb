"""Search for the fault that breaks a test: what its clients say is learned, then it runs with one fault at a time.

*model*: places, faults, plans and runs, and the protocol of what runs plans · *tape*: a run as its tape tells it ·
*places*: what runs have in common · *faults*: `faults.yaml`, the faults that a real cluster shows · *plan*: the rules
of a plan, and plans as text and as files · *order*: which plan is next · *judge*: outcomes and signatures · *trials*:
runs that make sure of a finding · *shrink*: the smallest plan that fails in the same way · *result*: what came of it ·
*database*: findings kept for the next time · *explorer*: all of that in turn · *report*: text, JSON, a page, and what
is known already · *runs*: runs as processes.

*option_table*, *options*: what users may say · *exploring*: one test, as pytest and the command line explore it ·
*pytest_plugin*, *pytest_session*: `pytest --kproxy-explore`. The command is `kproxy/cli/explore.py`.
"""
