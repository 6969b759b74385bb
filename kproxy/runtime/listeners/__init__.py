"""Listeners with their ports, and the ClientHello that selects a listener on a shared port."""
