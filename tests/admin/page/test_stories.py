"""What people want of the page, with a real kproxy before a mock cluster, by keys alone where that is the story."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.cli import main
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, free_port_with_room, free_ports
from tests.admin.page.conftest import OpenPage, expect, tab_to, wait_for_notice
from tests.admin.page.test_page import cells
from tests.support.capture_files import packets, pcap, produce, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

RENAME = {"name": "orders lives elsewhere", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
SLOW = {"name": "slow now", "kind": "delay", "match": {"api": "Produce", "client_id": "slow"}, "delay": "250ms"}
FAILS = {"name": "first fails", "kind": "error", "match": {"api": "Produce", "client_id": "failing"}, "when": {"first": 1},
         "error": "NOT_LEADER_OR_FOLLOWER"}  # fmt: skip
PATIENCE = 60
OFFSET_TAIL_1 = -2001  # librdkafka's RD_KAFKA_OFFSET_TAIL(1)


@dataclass
class Shop:
    """A proxy with an open page, and a producer through it."""

    proxy: Proxy
    url: str

    def order(self, number: int, client: str = "shop", topic: str = "orders") -> Producer:
        """Write one order. Return the producer when it is acknowledged; its connections close when it is dropped."""
        producer = Producer({"bootstrap.servers": self.proxy.bootstrap, "client.id": client, "retry.backoff.ms": 20})
        value = json.dumps({"order": number}).encode()
        producer.produce(topic, value, key=b"customer 7", headers={"trace": b"a1"}, partition=0)
        assert producer.flush(PATIENCE) == 0
        return producer


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as cluster:
        cluster.create_topic("prod.orders", 1)
        yield cluster


@pytest.fixture(scope="module")
def shop(cluster: MockCluster) -> Iterator[Shop]:
    with Proxy(cluster.bootstrap, rules=[RENAME, SLOW, FAILS]) as proxy:
        yield Shop(proxy, f"http://{proxy.admin}/view/")


def opened(open_page: OpenPage, shop: Shop, client: str) -> Page:
    """Return a page that shows the writes of one client."""
    page = open_page(f"{shop.url}#/exchanges?f=~k+produce+~cl+{client}")
    page.wait_for_selector(".stream.live + span")
    return page


def test_fields_and_bytes_before_and_after(shop: Shop, open_page: OpenPage) -> None:
    """N2: both frames side by side; the renamed field is marked in the tree and in the bytes, with both values."""
    page = opened(open_page, shop, "before")
    shop.order(41, "before")
    page.wait_for_selector(".list [data-place]")
    page.keyboard.press("j")
    page.wait_for_selector(".hex + .hex b.changed")
    field = " ".join(page.locator(".field.changed").first.inner_text().split())

    assert re.search(r'"orders" → "prod\.orders" COMPACT_STRING \d+–\d+', field), field
    assert "1 field changed" not in page.locator(".hex h3").first.inner_text()
    sizes = [int(re.findall(r"(\d+) bytes", text)[0]) for text in page.locator(".hex h3").all_inner_texts()]
    assert sizes[1] - sizes[0] == 2 * len("prod.") or sizes[1] - sizes[0] == len("prod.")
    marked = [page.locator(f".hex >> nth={side} >> b.changed").all_inner_texts() for side in (0, 1)]
    assert "orders" in marked[0][-1] and "prod.order" in "".join(marked[1])


def test_records_are_shown_with_keys_and_headers(shop: Shop, open_page: OpenPage) -> None:
    """JSON is indented; as hex."""
    page = opened(open_page, shop, "records")
    shop.order(42, "records")
    page.wait_for_selector(".list [data-place]")
    page.keyboard.press("j")
    page.get_by_role("tab", name="Records").click()
    page.wait_for_selector(".records td")
    row = page.locator(".records tbody tr").inner_text().split("\t")
    page.locator(".records select").select_option("hex")

    assert ["orders[0]", "customer 7", '{\n  "order": 42\n}', "trace=a1"] == [row[0], *row[3:]]
    page.wait_for_selector("text=63 75 73 74 6f 6d 65 72 20 37")


def test_from_the_slow_ones_to_the_reason_by_keys(shop: Shop, open_page: OpenPage) -> None:
    """O1: the chip "slow", the exchange, its parts: they add up to the latency, and the rule is named."""
    page = opened(open_page, shop, "slow")
    shop.order(43, "slow")
    page.wait_for_selector(".list [data-place]")
    page.keyboard.press("S")
    page.wait_for_selector(".list [data-place]")
    assert "slow now" in cells(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tab-request:focus")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".timing table")
    parts = [float(text.split()[0]) for text in page.locator(".timing table >> nth=0 >> td.r").all_inner_texts()]

    assert 250 <= parts[0] <= parts[3]
    assert abs(sum(parts[:3]) - parts[3]) <= 1  # four whole numbers, each rounded by less than a half
    expect(page.locator(".timing")).to_contain_text("rules held it (slow now)")


def test_what_kproxy_answered_is_told(shop: Shop, open_page: OpenPage) -> None:
    """A red row with its error's name, who answered, and of the other rules why they did not act."""
    page = opened(open_page, shop, "failing")
    shop.order(44, "failing")
    page.wait_for_selector(".row.failed.by-kproxy")
    page.locator(".row.failed").click()
    page.get_by_role("tab", name="Rules").click()
    page.wait_for_selector(".ruled table")
    text = page.locator(".ruled").inner_text()

    assert "kproxy answered in the broker's place" in text and "first fails" in text
    assert "it binds connections when they open" in text


@pytest.mark.deep
def test_a_connection_is_followed_by_one_key(shop: Shop, open_page: OpenPage) -> None:
    """N3: every exchange of it in order, and its lanes."""
    page = open_page(shop.url)
    page.wait_for_selector(".stream.live + span")
    shop.order(45, "followed")
    shop.order(46, "unwanted")
    page.wait_for_selector(".list >> text=followed")
    page.locator(".row", has_text="followed").filter(has_text="Produce").first.click()
    page.wait_for_selector("aside >> text=Connection")
    page.keyboard.press("c")
    page.wait_for_selector(".chip.crumb")
    page.wait_for_function("() => !document.querySelector('.list').textContent.includes('unwanted')")
    page.wait_for_selector(".list >> text=ApiVersions")
    connections = page.evaluate(
        "() => [...new Set([...document.querySelectorAll('[data-place]')].map(row => row.children[2].textContent))]"
    )
    page.keyboard.press("Y")
    page.wait_for_selector(".moment >> text=Produce")

    assert len(connections) == 1 == page.locator(".lane-heads h3").count()


def test_what_clients_are_told_of_brokers(shop: Shop, cluster: MockCluster, open_page: OpenPage) -> None:
    """N1: the broker's own address, what its clients are told, where kproxy dialled."""
    kept = shop.order(47)
    page = open_page(f"{shop.url}#/topology")
    page.wait_for_selector(".box >> text=dialled")
    del kept
    text = page.locator("main").inner_text()

    assert f"its own\n{cluster.bootstrap}" in text and "clients of main\n127.0.0.1:" in text
    assert shop.proxy.bootstrap in text and re.search(rf"dialled\n{cluster.bootstrap} · \d+ open", text)


@pytest.fixture
def guarded(cluster: MockCluster, tmp_path: Path) -> Iterator[Shop]:
    """A proxy with two tokens, of which one may only look, that shows no records."""
    for name in ("full", "read"):
        (tmp_path / name).write_text(f"{name}-token")
    admin = f"127.0.0.1:{free_ports(1)[0]}"
    config = {
        "admin": {"bind": admin, "token": f"file:{tmp_path}/full", "read_token_file": f"{tmp_path}/read"},
        "clusters": {"main": {"bootstrap": [cluster.bootstrap]}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(4)}", "cluster": "main"}],
        "view": {"records": False},
    }
    proxy = Proxy(config=config, rules=[RENAME])
    proxy.admin = admin
    with proxy:
        yield Shop(proxy, f"http://{admin}/view/")


@pytest.mark.deep
def test_who_may_only_look_changes_nothing_and_sees_no_records(guarded: Shop, open_page: OpenPage) -> None:
    """U2, U3: nothing to change with is on the page, and the proxy refuses it all the same; keys, values and headers
    are in neither tree, bytes nor records."""
    page = open_page(f"{guarded.url}#/exchanges?f=~k+produce", live=False)
    page.wait_for_selector("dialog.login")
    page.keyboard.type("read-token")
    page.keyboard.press("Enter")
    page.wait_for_selector(".stream.live + span")
    guarded.order(48)
    page.wait_for_selector(".list [data-place]")
    page.keyboard.press("j")
    page.wait_for_selector(".hx .bytes")
    bytes_shown = " ".join(page.locator(".hx").all_inner_texts())
    page.get_by_role("tab", name="Records").click()
    page.wait_for_selector(".part >> text=does not show")
    refused = page.evaluate("""async () => { const { send } = await import('/view/api.mjs');
        return send('POST', '/api/faults/disable').then(() => 'done', (error) => error.code); }""")

    assert refused == "read_only"
    assert page.get_by_role("button", name=re.compile("Kill|Recycle|Close|Intercept|^Add|Resume")).count() == 0
    assert "63 75 73 74" not in bytes_shown and "customer" not in page.locator("main").inner_text()


@pytest.mark.deep
def test_a_proxy_that_was_restarted_is_taken_up(cluster: MockCluster, open_page: OpenPage) -> None:
    """The page says that rows are missing, and goes on by itself; the rows before stay."""
    proxy = Proxy(cluster.bootstrap, rules=[RENAME])
    with proxy:
        shop = Shop(proxy, f"http://{proxy.admin}/view/")
        page = opened(open_page, shop, "shop")
        shop.order(49)
        page.wait_for_selector(".list [data-place]")
        assert proxy.child is not None
        proxy.child.stop(20)
        page.wait_for_selector(".stream.lost")
        proxy.launch()
        proxy.start()
        page.wait_for_selector(".stream.live + span")
        page.wait_for_selector(".row.note")
        shop.order(50)
        page.wait_for_function("() => document.querySelectorAll('.list [data-place]').length === 2")


def test_a_rule_is_made_and_added_by_keys(shop: Shop, open_page: OpenPage, tmp_path: Path) -> None:
    """A3: what `m` proposes is taken by `kproxy check` as it is, and the next write gets the error that it says; then
    it is removed by keys, too."""
    page = opened(open_page, shop, "rule")
    shop.order(51, "rule")
    page.wait_for_selector(".list [data-place]")
    page.keyboard.press("j")
    page.wait_for_selector(".details")
    page.keyboard.press("m")
    page.wait_for_selector("dialog textarea")
    tab_to(page, "dialog input[placeholder=any]")
    page.keyboard.type("1")
    page.wait_for_selector("text=would match")
    file = tmp_path / "rule.yaml"
    file.write_text(page.locator("dialog textarea").input_value())
    assert CliRunner().invoke(main, ["check", str(file)]).exit_code == 0
    tab_to(page, "dialog button.primary")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=the rule is in force")
    shop.order(52, "rule")
    page.wait_for_selector(".row.failed em >> text=error for Produce of orders")
    page.keyboard.press("Escape")
    page.goto(f"{shop.url}#/rules")
    page.wait_for_selector("main tbody tr >> nth=3")
    for _ in range(4):
        page.keyboard.press("j")
    page.wait_for_selector("[aria-selected=true] >> text=error for Produce of orders")
    page.keyboard.press("x")
    page.wait_for_selector("dialog button.last:focus")
    tab_to(page, "dialog button.warns")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=removed")


def test_what_nobody_lets_go_goes_on_by_itself(shop: Shop, open_page: OpenPage) -> None:
    """A4: after its time; all who look are told, and its row has the rule and how long that held it."""
    page = opened(open_page, shop, "alone")
    page.evaluate("""async () => { const { send } = await import('/view/api.mjs');
        await send('PUT', '/api/rules/hold%20a%20moment?ttl=1m', {kind: 'intercept', hold_for: '1200ms', filter: '~k produce ~cl alone'}); }""")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(shop.order, 53, "alone")
        page.wait_for_selector(".held-frame")
        wait_for_notice(page, "timed out")
        writing.result(PATIENCE)
    page.wait_for_selector(".list .row:not(.waiting) em >> text=hold a moment")
    page.keyboard.press("j")
    page.get_by_role("tab", name="Timing").press("Enter")
    expect(page.locator(".timing")).to_contain_text("rules held it (hold a moment)")


@pytest.mark.deep
def test_a_capture_of_tcpdump_is_looked_into(shop: Shop, open_page: OpenPage, tmp_path: Path) -> None:
    """N4: dropped on the page; its lost place is named, and its exchanges have fields and bytes."""
    sent = written(tmp_path / "own.pcapng", [produce(number, size=5000, at=1000.0 + number) for number in range(1, 9)])
    found = packets(sent)
    there = [(one.time, one.data, one.length) for number, one in enumerate(found) if number != len(found) // 2]
    data = pcap(tmp_path / "tcpdump.pcap", found[0].link, there).read_bytes()
    page = open_page(shop.url)
    page.wait_for_selector("text=Open a file…")
    page.evaluate("""(text) => {
        const given = new DataTransfer();
        given.items.add(new File([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))], "tcpdump.pcap"));
        dispatchEvent(new DragEvent("drop", {dataTransfer: given, bubbles: true, cancelable: true}));
    }""", b64encode(data).decode())  # fmt: skip
    page.wait_for_selector(".stream.source")
    page.wait_for_selector(".sources >> text=/bytes missing in 1 place/")
    page.wait_for_selector(".list [data-place] >> nth=3")
    page.keyboard.press("j")
    page.wait_for_selector(".hx .bytes")
    expect(page.locator(".tree").first).to_contain_text('name "orders"')
    page.keyboard.press("c")
    page.wait_for_selector(".chip.crumb")
    tab_to(page, ".sources [aria-label='Close tcpdump.pcap']")
    page.keyboard.press("Enter")
    page.wait_for_selector(".stream.live + span")


def test_a_write_is_held_and_edited_by_keys(cluster: MockCluster, shop: Shop, open_page: OpenPage) -> None:
    """A1, A2, by keys alone. The cluster stores the edit under its own name of the topic, and both pages are notified."""
    page, other = (opened(open_page, shop, "held") for _ in range(2))
    page.keyboard.press("i")
    page.wait_for_selector("dialog button.last:focus")
    tab_to(page, "dialog button.primary")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=holds requests for 10m")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(shop.order, 50, "held")
        page.wait_for_selector(".held-frame")
        other.wait_for_selector(".held-frame")
        tab_to(page, ".held-frame")
        page.keyboard.press("e")
        page.wait_for_selector("dialog .value")
        page.wait_for_selector("dialog [role=treeitem] >> text=offset 0")
        for name, text in (("key", "customer 8"), ("value", '{"order": "edited"}')):
            tab_to(page, f"dialog input[aria-describedby$='records[0].{name}']")
            page.keyboard.press("Control+A")
            page.keyboard.type(text)
        expect(page.locator("dialog [role=status]")).to_have_text(re.compile("leaves with"))
        page.keyboard.press("Enter")
        writing.result(PATIENCE)
    other.wait_for_selector(".held-frame", state="detached")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("prod.orders", 0, OFFSET_TAIL_1)])
    message = consumer.poll(PATIENCE)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"customer 8", b'{"order": "edited"}')
