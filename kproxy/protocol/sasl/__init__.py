"""SASL mechanisms as pure state machines: tokens in, tokens out; no Kafka, socket or clock.

*Token*: what one side sends in one step. *Client*: who authenticates itself; kproxy towards brokers. *Server*: who
checks; kproxy towards clients. *Credential*: what a server keeps of a password, which does not give it away.
"""
