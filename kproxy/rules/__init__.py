"""Rules: YAML documents that a user writes, and their effect on connections, frames and entities.

`values`: YAML values, lowest · `select`, `names`, `filter`: selectors, name maps, filter language · `kinds`: one file
per rule kind, base classes in `kinds/base` · `rule_set`: active rules, rules that match a connection · `document`:
read, check, lint and store rule documents, highest.

Imports: protocol, base. No clock, socket or log. Entry points: `load_rules`, `RuleSet.bind`, `RuleStore`.
"""
