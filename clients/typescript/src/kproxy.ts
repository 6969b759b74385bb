/**
 * Starts kproxy as a process between the Kafka client of a test and a mock cluster or other brokers. Tests inject
 * faults, wait for them, and read exchanges. The process stops when the process of the test ends.
 */
import { AssertionError } from 'node:assert'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

const START_PATIENCE = 180_000 // milliseconds
const LONGEST_WAIT = 60_000 // milliseconds of one wait for exchanges
const RULE_TTL = '1h' // lifetime of a rule whose test was killed
const PAGE_SIZE = 1000

/** Options of a process. */
export interface Options {
  /** Partitions of topics that exist from the start. The mock cluster creates other topics at first use. */
  topics?: Record<string, number>
  /** Number of mock brokers (default: 3). */
  brokers?: number
  /** host:port,… of brokers, instead of a mock cluster. */
  upstream?: string
  /** Rule files and folders that apply from the start. */
  rules?: string[]
  /** Seed of random choices (default: random). */
  seed?: number
  /** Command (default: the environment variable KPROXY, or kproxy on the PATH). */
  command?: string
}

/** A rule as in a rule file, without a name. */
export interface RuleDocument {
  kind: string
  match?: Record<string, unknown>
  not?: Record<string, unknown>
  when?: Record<string, unknown>
  [parameter: string]: unknown
}

/** Counters of a rule: its selectors matched, its trigger fired, its change was sent. */
export interface Counters {
  matched: number
  fired: number
  applied: number
}

/** A request with its response: columns of the live view by name. */
export interface Exchange {
  id: string
  api: string
  version: number
  client: string | null
  topic: string | null
  errors: string[]
  rules: string[]
  /** Milliseconds from the request to its response. */
  latency: number | null
  outcome: 'answered' | 'no_answer_due' | 'unanswered' | 'closed'
  [column: string]: unknown
}

/** Error response of the admin API. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly mistakes: { where: string; message: string }[] = [],
  ) {
    super([message, ...mistakes.map((one) => `  ${one.where}: ${one.message}`)].join('\n'))
    this.name = 'Refusal'
  }
}

/** A rule of a test. */
export class Rule {
  constructor(
    private readonly kproxy: Kproxy,
    readonly name: string,
  ) {}

  /** Resolves when the rule has fired `hits` times; rejects after `timeout` milliseconds. */
  async wait(hits = 1, timeout = 30_000): Promise<Counters> {
    const path = `/wait?hits=${hits}&timeout=${timeout}ms`
    const found = await this.ask<{ reached: boolean; rule: Counters }>('POST', path)
    if (found.reached) return found.rule
    throw failure(`the rule "${this.name}" has fired ${found.rule.fired} of ${hits} times after ${timeout} ms`)
  }

  /** Returns the current counters. */
  counters(): Promise<Counters> {
    return this.ask('GET')
  }

  /** Removes the rule; it is not an error if the rule was removed before. */
  async remove(): Promise<void> {
    try {
      await this.ask('DELETE')
    } catch (error) {
      if (!(error instanceof Refusal && error.code === 'no_such_rule')) throw error
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.remove()
  }

  private ask<T>(method: string, path = ''): Promise<T> {
    return this.kproxy.ask(method, `/api/rules/${encodeURIComponent(this.name)}${path}`)
  }
}

/** A process of kproxy. Call `clear` after each test that shares it, and `stop` at the end. */
export class Kproxy {
  private rules: Rule[] = []
  private count = 0
  private place = ''

  private constructor(
    private readonly process: ChildProcess,
    /** host:port for clients. */
    readonly bootstrap: string,
    /** URL of the admin API. */
    readonly admin: string,
  ) {}

  /** Starts kproxy in front of a mock cluster, or of `upstream`. It stops at `stop`, and when this process ends. */
  static async start(options: Options = {}): Promise<Kproxy> {
    const words = (options.command ?? process.env['KPROXY'] ?? 'kproxy').trim().split(/\s+/)
    words.push('mock', '--until-eof', '--admin', '127.0.0.1:0')
    for (const [name, partitions] of Object.entries(options.topics ?? {})) words.push('--topic', `${name}:${partitions}`)
    if (options.brokers !== undefined) words.push('--brokers', String(options.brokers))
    if (options.upstream !== undefined) words.push('--upstream', options.upstream)
    for (const path of options.rules ?? []) words.push('--rules', path)
    if (options.seed !== undefined) words.push('--seed', String(options.seed))
    const child = spawn(words[0]!, words.slice(1), { stdio: ['pipe', 'pipe', 'pipe'] })
    let said = ''
    child.stderr.on('data', (data: Buffer) => (said = (said + data.toString()).slice(-10_000)))
    const failed = new Promise<never>((_, reject) => {
      child.once('error', (error) =>
        reject(new Error('cannot start kproxy, set KPROXY or add kproxy to the PATH', { cause: error })),
      )
      child.once('close', () => reject(new Error(`kproxy did not start: ${said.trim()}`)))
    })
    failed.catch(() => {}) // it may reject after the race below
    const late = setTimeout(() => child.kill('SIGKILL'), START_PATIENCE)
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    const line = async () => {
      const found = await Promise.race([lines.next(), failed])
      return found.done ? failed : found.value
    }
    try {
      const kproxy = new Kproxy(child, await line(), await line())
      await kproxy.clear()
      return kproxy
    } finally {
      clearTimeout(late)
    }
  }

  /** Stops the process, and resolves when it has stopped. */
  async stop(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return
    const ended = once(this.process, 'exit')
    this.process.stdin?.end()
    await ended
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  /** Removes the injected rules, and excludes earlier exchanges from later results: for the end of each test. */
  async clear(): Promise<void> {
    for (const rule of this.rules.splice(0)) await rule.remove()
    this.place = (await this.page({ limit: '1' }, '')).place
  }

  /** Applies a rule from the next frame of each connection on. */
  async inject(document: RuleDocument): Promise<Rule> {
    const rule = new Rule(this, `${document.kind} ${++this.count}`)
    await this.ask('POST', `/api/rules/${encodeURIComponent(rule.name)}?origin=test&ttl=${RULE_TTL}`, document)
    this.rules.push(rule)
    return rule
  }

  /** Asserts that each of these rules, or each injected one, changed something that was sent. */
  async assertApplied(...rules: Rule[]): Promise<void> {
    const wanted = rules.length > 0 ? rules : this.rules
    if (wanted.length === 0) throw failure('expected an injected rule, got none')
    for (const rule of wanted) {
      const { matched, fired, applied } = await rule.counters()
      if (applied > 0) continue
      const why = await this.why(rule, matched, fired)
      throw failure(`the rule "${rule.name}" was not applied: matched ${matched}, fired ${fired}, applied 0; ${why}`)
    }
  }

  /** The stage at which a rule stopped. */
  private async why(rule: Rule, matched: number, fired: number): Promise<string> {
    if (matched === 0) return 'no request matched'
    if (fired === 0) return 'its trigger did not fire'
    const closed = await this.exchanges('outcome == unanswered or outcome == closed')
    if (closed.some((one) => one.rules.includes(rule.name))) return 'the connection closed before the response was sent'
    return 'its requests are still unanswered, or it had nothing to change'
  }

  /**
   * Returns the finished exchanges since the start or the last `clear` that match, oldest first. The filter is in the
   * language of `kproxy tail`, such as `~k produce ~t orders`.
   */
  async exchanges(filter = ''): Promise<Exchange[]> {
    const found: Exchange[] = []
    for (let before = ''; ; ) {
      const page = await this.page({ filter, limit: String(PAGE_SIZE), before })
      if (page.gone !== 0) throw failure('expected all exchanges of the test, got a part: a process keeps the last 20,000, and at most 64 MiB')
      for (const row of page.rows) {
        const exchange = Object.fromEntries(page.columns.map((name, at) => [name, row[at]])) as Exchange
        if (exchange.outcome !== null) found.push(exchange) // null: not finished
      }
      if (page.next === null) return found.reverse()
      before = page.next
    }
  }

  /** Returns the same when `count` exchanges match; rejects after `timeout` milliseconds, at most a minute. */
  async waitForExchanges(filter: string, count = 1, timeout = 30_000): Promise<Exchange[]> {
    const wait = `${Math.min(timeout, LONGEST_WAIT)}ms`
    const page = await this.page({ filter, wait, count: String(count), limit: '1' })
    if (page.reached) return this.exchanges(filter)
    throw failure(`filter "${filter}": expected ${count} exchanges in ${wait}, got fewer`)
  }

  private page(query: Record<string, string>, after = this.place): Promise<Page> {
    return this.ask('GET', `/api/exchanges?${new URLSearchParams({ ...query, after })}`)
  }

  /** @internal */
  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers = method === 'POST' ? { 'Content-Type': 'application/json' } : undefined
    const answer = await fetch(this.admin + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
    const found: unknown = await answer.json()
    if (answer.ok) return found as T
    const { code, message, mistakes } = (found as { error: Refusal }).error
    throw new Refusal(code, message, mistakes)
  }
}

interface Page {
  columns: string[]
  rows: unknown[][]
  next: string | null
  place: string
  gone: number | null
  reached: boolean | null
}

function failure(message: string): AssertionError {
  return new AssertionError({ message })
}
