"""Tests of rules as documents: `*.test.yaml`, run by `kproxy test` without sockets and without a clock.

*case*: one test, a dialogue in steps · *step*: what a client sends, what the broker must get, what it answers, what the
client must get · *piece*: a frame that came out on one side, or the bytes that are no frame · *world*: the rules,
connections and time of one case.
"""
