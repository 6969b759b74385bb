"""HTTP servers: the admin API, the page of the live view, and the admission webhook for sidecars.

`api.make_app` builds the application from the tables of operations, `http_server.serve_admin` serves it. Each operation
calls the `Backend`, which calls each worker through `worker_api.Member`. The folder may import everything below it:
lake, tools, runtime, record, session, rules, protocol, base.
"""
