"""Rules: documents, kinds and selectors that a user writes, and what they come to for one connection.

*document*: a YAML file, kept with the position of every key and value · *mistake*: one thing wrong in it, as
`file:line:column: message` · *rule*: a named entry of a rule document; its *kind* says what it does · *selector*: one
line of `match:` · *rule set*: all rules in file order · *bound*: those that hold for one connection.

Nothing here has a clock, a socket or a log.
"""
