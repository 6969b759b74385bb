"""SASL mechanisms as pure state machines from tokens to tokens, without Kafka, sockets or clocks.

mechanisms.py has the client (kproxy to brokers) and the server (clients to kproxy); scram.py SCRAM and the users file.
"""
