"""`python -m kproxy` is `kproxy`."""

from kproxy.cli.start import start

start()
