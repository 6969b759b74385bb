"""Translation between client names and broker names of topics, groups and transactional ids.

`name_rewrite` gives the rewrite of one message. A *hidden* name is one that the client must not
see: it belongs to another tenant, or a rename uses its client name. It is removed from responses. An *unreachable* name
is one that the client may not use, since it is the target of a rename. It reaches the broker in a form that no resource
has, so the broker responds that it does not exist.

    translator       one name; all fields that the table marks as names; coordinator keys
    answers          Metadata and DescribeTopicPartitions: errors of unreachable names, hidden topics by id
    topic_ids        topic ids, and opaque ids in place of those of hidden topics
    groups           the consumer protocol's bytes in JoinGroup, SyncGroup, DescribeGroups
    resources        topics and groups in configs and ACLs, by another field's value
    tenant_denials   requests and fetch sessions that would act on other tenants
    regex            regular expressions and patterns of clients
    rewrites         the table of all of these; long messages with a single topic
"""

from .rewrites import NameRewrite, SingleTopicRewriter, known_heads, name_rewrite, single_topic_rewriter
from .tenant_denials import OPENS, learn_session
from .topic_ids import DISGUISED, by_id

__all__ = [
    "DISGUISED",
    "OPENS",
    "NameRewrite",
    "SingleTopicRewriter",
    "by_id",
    "known_heads",
    "learn_session",
    "name_rewrite",
    "single_topic_rewriter",
]
