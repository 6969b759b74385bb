"""Reaching into decoded bodies: where topics, partitions, brokers, coordinators, offsets and records lie in them.

Bodies are plain dicts under the names of the protocol guide (`kproxy.wire`). What is found here may be changed in
place; whoever does so says `Edit()`. Names are the client's.
"""
