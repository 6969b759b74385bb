"""Live rules at work on one connection: which of them can be about a request, what they select in it, what they decide.

rule_program    the rules of one (api, version), compiled; rule_part, part_index: one of them, and how it is found
prefilter       the first look at a request's names; name_scan: the same by the bytes of names
subjects        the entities of a request, with fetch and share sessions; selection: those that rules select
engine          the evaluation of a request; response_evaluation: that of its response
screening       what answers must not mention; answer_screen: one look at one message
"""
