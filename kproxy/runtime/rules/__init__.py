"""Rules at work in a process: put into force, read again from files, waited for."""
