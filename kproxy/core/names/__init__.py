"""Topic names wherever they travel: what the client calls them ↔ what the broker calls them.

`topic_rewrite` gives the rewrite of one message. A *hidden* topic is one whose client-side spelling a rename has
taken; it is removed from answers. An *unreachable* name is one that the client may not use, because it spells a
rename's target; it goes to the broker with `!` in front, which no topic can have, so the broker answers that there is
no such topic.

    plain       every field the table calls a topic name
    answers     Metadata and DescribeTopicPartitions: errors of unreachable names, hidden topics by id, cursors
    groups      the consumer protocol's bytes in JoinGroup, SyncGroup, DescribeGroups
    resources   names in configs and ACLs that are topics by another field's value
    lone        the only name of a long message, without holding it
    regex       regular expressions that the broker evaluates
"""

from .lone import LoneName, lone_name
from .rewrites import CANNOT, Cannot, topic_rewrite

__all__ = ["CANNOT", "Cannot", "LoneName", "lone_name", "topic_rewrite"]
