"""Rule documents: read, checked, linted, stored, and described for help and reference pages.

Imports: all other parts of rules. Entry points: `load_rules`, `lint_rules`, `RuleStore`.
"""
