"""How groups are."""


def did(api, second, **more):
    given = {"group": "g", "client_id": "a", "client_address": "10.0.0.1", "generation": 5, "member": "a-1"}
    return {
        "api": api,
        "time": f"2026-11-20 {10 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}",
        **given,
        **more,
    }


def test_rebalances_are_generations_that_members_joined(answer):
    """However many members joined a generation, also on two days, it is one rebalance; failed joins are apart, and a
    member's first step is neither."""
    groups = [
        did("JoinGroup", 0, member="", error="MEMBER_ID_REQUIRED", generation=-1),
        did("JoinGroup", 0, members=2, protocol="range"),
        did("JoinGroup", 1, client_id="b", member="b-1"),
        did("JoinGroup", 9, client_id="b", member="b-1", error="REBALANCE_IN_PROGRESS"),
        did("JoinGroup", 60, generation=6, members=1, protocol="roundrobin"),
        {**did("JoinGroup", 0, generation=6), "time": "2026-11-21 00:00:00"},
        did("LeaveGroup", 60, client_id="b"),
        did("Heartbeat", 90, generation=6),
        did("Heartbeat", 91, client_id="b", error="UNKNOWN_MEMBER_ID"),
    ]
    requests = [{"api": "OffsetCommit", "group": "g", "client_id": "a", "client_address": "10.0.0.1", "count": 14}]
    [row] = answer("group_health", groups=groups, requests=requests)

    names = ("members", "rebalances", "joins", "failed_joins", "leaves", "heartbeats", "zombie_heartbeats", "commits")
    assert (2, 2, 4, 1, 1, 2, 1, 14) == tuple(row[name] for name in names)
    assert ("a", 3, "roundrobin", 2) == (
        row["most_joins_client"], row["most_joins"], row["protocol"], row["member_ids"],
    )  # fmt: skip
    assert ["zombies"] == row["findings"]


def test_epochs_of_the_newer_protocol_are_rebalances_after_the_first(answer):
    """Heartbeats tell the member's epoch; -1 is a member that leaves."""
    groups = [did("ConsumerGroupHeartbeat", n, generation=epoch) for n, epoch in enumerate((0, 3, 3, 4, 4, 5, -1))]
    [row] = answer("group_health", groups=groups)

    assert (2, 0, 1, 7) == (row["rebalances"], row["joins"], row["leaves"], row["heartbeats"])


def test_what_is_worth_a_look_is_found(answer):
    """Ten rebalances in an hour; a new member id each time; a hundred commits in a minute."""
    groups = [did("JoinGroup", n, generation=n, member=f"a-{n}", members=1) for n in range(10)]
    requests = [{"api": "TxnOffsetCommit", "group": "g", "client_id": "a", "client_address": "10.0.0.1", "count": 100}]
    [row] = answer("group_health", groups=groups, requests=requests)

    assert (["rebalances often", "flapping members", "commits often"], 10.0, 10) == (
        row["findings"], row["rebalances_per_hour"], row["member_ids"],
    )  # fmt: skip
