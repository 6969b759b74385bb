"""Runs of a test, each in its own process: *child*, *sandbox* in a run; *fork_server* over them; *fork_runner* in the
explorer; *pytest_runs* and *command_runs* for tests and commands."""
