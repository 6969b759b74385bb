"""SASL without the lanes: who the client is, from its frames (`identity`, `principal`), and login frames (`login`)."""
