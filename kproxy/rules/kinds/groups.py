"""The kinds by what they are for, as `kproxy kinds` lists them."""

from __future__ import annotations

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "names: what clients call things, and what brokers do": (
        "rename_topic", "rename_group", "rename_transactional_id", "prefix",
    ),
    "addresses and versions": ("advertise", "limit_versions"),
    "access: who may do what": ("deny", "require", "read_only", "allow_from"),
    "quotas": ("quota",),
    "errors and time": ("error", "throttle_time", "delay"),
    "connections and their bytes": ("bandwidth", "slice", "refuse", "blackhole", "disconnect"),
    "frames: lost, cut, spoiled, doubled": (
        "drop", "truncate", "short_body", "bad_length", "wrong_correlation_id", "duplicate_response",
        "reorder_responses", "trailing_bytes", "unknown_tag", "corrupt",
    ),
    "the cluster as clients see it": (
        "stale_metadata", "move_leader", "no_leader", "shift_epoch", "hide_node", "add_node", "wrong_address",
        "hide_topic", "recreate_topic", "change_partitions", "no_controller", "preferred_replica",
    ),
    "groups, offsets and transactions": (
        "rebalance", "move_coordinator", "rewind_offset", "omit_offset", "drop_commit", "bad_assignment",
        "fence_producer", "short_session",
    ),
    "records": (
        "empty_fetch", "duplicate_records", "drop_records", "reorder_records", "corrupt_records", "poison_records",
        "set_record", "malformed_batch", "set_watermark",
    ),
    "anything else": ("set", "python"),
}  # fmt: skip
"""Title → kinds, in the order of `KINDS`."""
