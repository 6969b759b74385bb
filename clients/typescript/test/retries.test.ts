import assert from 'node:assert/strict'
import { after, afterEach, before, test } from 'node:test'
import { Kafka, logLevel, Partitioners, type Producer } from 'kafkajs'
import { Kproxy } from '../src/kproxy.js'

let kproxy: Kproxy
let producer: Producer

before(async () => {
  kproxy = await Kproxy.start({ topics: { orders: 1 } })
  const kafka = new Kafka({
    brokers: [kproxy.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 8 },
  })
  producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  await write('the first one') // so that each test begins with a connection
})
afterEach(() => kproxy.clear())
after(async () => {
  await producer.disconnect()
  await kproxy.stop()
})

async function write(...values: string[]): Promise<void> {
  for (const value of values) await producer.send({ topic: 'orders', messages: [{ value }] })
}

// snippet: retries
test('the third write is tried again', async () => {
  const rule = await kproxy.inject({
    kind: 'error',
    match: { api: 'Produce', topic: 'orders' },
    when: { nth: 3 },
    error: 'NOT_LEADER_OR_FOLLOWER',
  })
  await write('one', 'two', 'three', 'four')
  await kproxy.assertApplied()
  assert.equal((await rule.counters()).matched, 5) // the fourth request was the third record's second attempt
})
// end

test('the exchanges tell what happened', async () => {
  await kproxy.inject({ kind: 'error', match: { api: 'Produce' }, when: { nth: 3 }, error: 'NOT_LEADER_OR_FOLLOWER' })
  await write('one', 'two', 'three', 'four')

  const writes = await kproxy.waitForExchanges('~k produce ~t orders', 5)
  assert.deepEqual(writes.map((one) => one.errors), [[], [], ['NOT_LEADER_OR_FOLLOWER'], [], []])
  assert.deepEqual(new Set(writes.map((one) => one.topic)), new Set(['orders']))
  assert.equal((await kproxy.exchanges('error and ~k produce')).length, 1)
})

test('a slow broker is waited for', async () => {
  const slow = await kproxy.inject({
    kind: 'delay',
    match: { api: 'Produce' },
    when: { once: true },
    delay: '300ms',
    at: 'response',
  })
  const began = performance.now()
  await write('one')
  await slow.wait()

  assert.ok(performance.now() - began >= 300)
  const [exchange] = await kproxy.waitForExchanges('~k produce')
  assert.ok(exchange!.latency! >= 300)
})

test('a lost answer is asked for again', async () => {
  const lost = await kproxy.inject({
    kind: 'disconnect',
    match: { api: 'Produce' },
    when: { once: true },
    at: 'response',
    close_with: 'rst',
  })
  await write('one')
  await kproxy.assertApplied(lost)
  assert.equal((await lost.counters()).matched, 2)
})
