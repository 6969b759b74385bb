"""Evaluation of live rules on one connection. Entry points: `engine.Engine`, `response_evaluation`.

engine, response_evaluation   evaluation of a request, and of its response
entity_resolver               entities of a request, with those of its fetch or share session
selection                     rules and entities that a request selects, cached by the bytes of frames
evaluation                    result of an evaluation: decisions, faults, holds
response_redaction            removal of denied names from responses
"""
