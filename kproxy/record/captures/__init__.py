"""Captures: pcapng files with the traffic, written from exchanges and read back as exchanges.

*Packet*: a unit of the file, with its time and its interface. *Segment*: the TCP part of a packet. *Piece*: the next
bytes of a stream, in order, and how many behind them are missing. *Frame*, *exchange*: as in kproxy.record.exchange.
"""
