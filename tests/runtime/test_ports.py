"""Which port stands for which node, without sockets."""

from __future__ import annotations

import pytest

from kproxy.runtime.listeners import port_pool
from kproxy.runtime.listeners.port_pool import FORGOTTEN, PortPool


class Table:
    """A PortPool with a record of what is bound; `busy` ports belong to somebody else."""

    def __init__(self, first: int, last: int, remembered: dict[int, int] | None = None, busy: set[int] | None = None):
        self.bound: dict[int, int] = {}
        self.busy = busy or set()
        self.ports = PortPool(first, last, remembered or {}, self.bind, self.bound.pop)

    def bind(self, port: int, node: int) -> bool:
        if port in self.bound or port in self.busy:
            return False
        self.bound[port] = node
        return True


def test_a_node_has_the_port_of_its_id_if_that_fits() -> None:
    """`first + id`, and the lowest free one for ids that are too large; asking again changes nothing."""
    table = Table(9093, 9102)

    assert [table.ports.ensure(node) for node in (0, 1, 9, 1001, 1)] == [9093, 9094, 9102, 9095, 9094]
    assert table.bound == {9093: 0, 9094: 1, 9102: 9, 9095: 1001}


def test_a_port_that_cannot_be_bound_is_left_out() -> None:
    """The next one is taken."""
    table = Table(9093, 9096, busy={9094, 9093})

    assert table.ports.ensure(1) == 9095
    assert table.ports.ensure(0) == 9096


def test_controllers_take_ports_from_the_top() -> None:
    """So that they are not in the way of brokers with small ids."""
    table = Table(9093, 9102)

    assert [table.ports.ensure(node) for node in (-3, -4, 1)] == [9102, 9101, 9094]


def test_remembered_ports_are_bound_again_and_kept() -> None:
    """A node gets the port that it had before the restart, and nobody else gets it; those out of range are dropped."""
    table = Table(9093, 9102, remembered={7: 9094, 8: 20000})
    table.ports.ensure(7)

    assert table.bound == {9094: 7}
    assert table.ports.ensure(1) == 9093
    assert table.ports.ensure(7) == 9094


def test_a_port_is_given_away_only_when_all_are_taken_and_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ask for addresses every five minutes, so after that the one used longest ago is free."""
    now = 1000.0
    monkeypatch.setattr(port_pool, "monotonic", lambda: now)
    table = Table(9093, 9094)
    table.ports.ensure(0)
    now += 10
    table.ports.ensure(1)

    assert table.ports.ensure(2) is None
    now += FORGOTTEN - 5
    table.ports.use(1)
    assert table.ports.ensure(2) == 9093
    assert table.bound == {9093: 2, 9094: 1}
    assert table.ports.ensure(0) is None


def test_a_port_that_cannot_be_bound_is_not_tried_for_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried once in a minute, however many nodes want one; then again."""
    now = 1000.0
    monkeypatch.setattr(port_pool, "monotonic", lambda: now)
    table = Table(9093, 10092, busy=set(range(9093, 10093)))
    tried: list[int] = []
    bind = table.ports.bind
    table.ports.bind = lambda port, node: tried.append(port) or bind(port, node)

    assert {table.ports.ensure(node) for node in range(-500, 20_000)} == {None}
    assert len(tried) == 1000
    now += port_pool.BUSY
    table.busy.clear()
    assert table.ports.ensure(3) == 9096


def test_nodes_without_end_cost_no_more_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand nodes want one of a thousand ports, again and again: no port is looked at more than twice."""
    now = 1000.0
    monkeypatch.setattr(port_pool, "monotonic", lambda: now)
    table = Table(9093, 10092)
    looked = 0

    class Counted(set[int]):
        def __contains__(self, port: object) -> bool:
            nonlocal looked
            looked += 1
            return super().__contains__(port)

    table.ports.taken = Counted()
    for _ in range(3):
        for node in range(20_000):
            table.ports.ensure(node)
    assert len(table.bound) == 1000
    assert looked < 2 * 1000 + 3 * 2000
    now += FORGOTTEN + 1
    assert [table.ports.ensure(node) for node in range(30_000, 31_001)].count(None) == 1


def test_two_nodes_remembered_with_one_port() -> None:
    """Only one of them has it."""
    table = Table(9093, 9102, remembered={1: 9095, 2: 9095})

    assert table.ports.ensure(2) == 9095
    assert table.ports.ensure(1) == 9094
    assert table.ports.ensure(3) == 9096


def test_who_was_not_given_a_port_does_not_use_one() -> None:
    """A connection to a node without a port keeps nothing."""
    table = Table(9093, 9093)
    table.ports.ensure(0)
    table.ports.use(7)

    assert list(table.ports.used) == [0]
