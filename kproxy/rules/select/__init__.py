"""Selectors: the connections, frames and entities that a rule matches.

Imports: filter, values, exchange, entity. Entry points: `ConnectionMatch`, `FrameMatch`, `AnswerMatch`.
"""
