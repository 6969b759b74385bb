"""Tests of rules as documents: `*.test.yaml`, run by `kproxy test` without sockets and without a clock.

*case*: one test, a dialogue in steps · *step*: what a client sends, what the broker must get, what it answers, what the
client must get · *piece*: an output frame of one side, or output bytes that are not a frame · *world*: the rules,
connections and time of one case.
"""
