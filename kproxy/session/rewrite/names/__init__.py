"""Names wherever they travel: what the client calls topics, groups and transactional ids ↔ what the broker calls them.

`name_rewrite` gives the rewrite of one message. A *hidden* name is one that the client must not see: it belongs to
others, or a rename has taken its client-side translator; it is removed from answers. An *unreachable* name is one that
the client may not use, because it spells a rename's target; it goes to the broker in a form that nothing has, so the
broker answers that there is no such thing.

    plain          every field the table calls a name
    answers        Metadata and DescribeTopicPartitions: errors of unreachable names, hidden topics by id
    ids            topic ids, where topics of others are to be unreachable
    disguise       what is sent in place of those
    fetch_owner    fetch sessions, which brokers give to whoever knows their numbers
    coordinators   keys of coordinators, which are groups or transactional ids
    transactions   patterns over transactional ids
    groups         the consumer protocol's bytes in JoinGroup, SyncGroup, DescribeGroups
    resources      names in configs and ACLs that are topics or groups by another field's value
    refusals       requests that would act on others, too, and messages that name them
    single_topic   the only name of a long message, without holding it
    regex          regular expressions over topics that the broker evaluates
    patterns       how long they may take, and patterns made of names
    translator     one name at a time
    rewrites       the table of all of these
"""

from .fetch_owner import OPENS, learn_session
from .ids import DISGUISED, by_id
from .rewrites import NameRewrite, name_rewrite
from .single_topic import SingleTopicRewriter, known_heads, single_topic_rewriter

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
