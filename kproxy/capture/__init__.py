"""Captures: pcapng files with synthetic TCP/IP, written from what watchers saw, and read back into exchanges.

The same reader takes what tcpdump writes, since both are TCP streams of Kafka frames.
"""
