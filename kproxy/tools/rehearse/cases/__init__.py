"""Tests of rules as documents: `*.test.yaml`, run by `kproxy test` without sockets and without a clock.

*case*: one test, a dialogue in steps · *step*: frames of the client and the broker, and the expected output on both
sides · *piece*: an output frame of one side, or output bytes that are not a frame · *world*: the rules, connections and
time of one case.
"""
