import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Kproxy, Refusal } from '../src/kproxy.js'

let kproxy: Kproxy
before(async () => {
  kproxy = await Kproxy.start({ brokers: 1 })
})
after(() => kproxy.stop())

test('rules go with clear, and by themselves at the end of a block', async () => {
  const first = await kproxy.inject({ kind: 'delay', delay: '1ms' })
  await first.remove()
  await first.remove()
  const second = await kproxy.inject({ kind: 'delay', delay: '1ms' })
  assert.deepEqual((await second.counters()).matched, 0)
  await second[Symbol.asyncDispose]()
  const third = await kproxy.inject({ kind: 'delay', delay: '1ms' })
  await kproxy.clear()
  for (const rule of [first, second, third]) {
    await assert.rejects(rule.counters(), (error: Refusal) => error.code === 'no_such_rule')
  }
})

test('what is wrong is said', async () => {
  await assert.rejects(kproxy.inject({ kind: 'error', error: 'NOPE' }), /unknown error "NOPE"/)
  await assert.rejects(kproxy.exchanges('~nothing'), /filter, column/)
  await assert.rejects(kproxy.assertApplied(), /expected an injected rule, got none/)
  const rule = await kproxy.inject({ kind: 'delay', match: { api: 'Fetch' }, delay: '1ms' })
  await assert.rejects(kproxy.assertApplied(), /was not applied: matched 0, fired 0, applied 0; no request matched/)
  await assert.rejects(rule.wait(1, 50), /has fired 0 of 1 times after 50 ms/)
  await assert.rejects(kproxy.waitForExchanges('~k fetch', 1, 50), /expected 1 exchanges in 50ms, got fewer/)
  await kproxy.clear()
})

test('what does not start says why', async () => {
  await assert.rejects(Kproxy.start({ rules: ['/no/such/file.yaml'] }), /\/no\/such\/file\.yaml/)
  await assert.rejects(Kproxy.start({ command: 'no-such-program-here' }), /set KPROXY/)
})
