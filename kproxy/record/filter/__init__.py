"""One language to say which exchanges are meant: while they pass, in captures, and in recorded events.

    wanted = Filter('api == Produce and topic ~ "^orders" and latency > 200ms')     # ~k produce ~t ^orders ~lat > 200ms
    wanted.holds(view)

Words: a *view* is what a filter sees of an exchange, live or recorded; what a filter's text says is read by
`kproxy.rules.filter`. The tree of claims is made into a function once; text of a user is never run.
"""
