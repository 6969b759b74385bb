// The scenario of tests/lab/matrix/scenario.py by kafkajs.
"use strict";

const { Kafka, logLevel } = require("kafkajs");
const { version } = require("kafkajs/package.json");

const [bootstrap, topic, made, group, transactionalId, ...only] = process.argv.slice(2);
const COUNT = 30, PARTITIONS = 3, PATIENCE = 90_000;

const kafka = new Kafka({ clientId: "kafkajs", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const distinct = (values) => [...new Set(values)].sort();

async function until(condition) {
  const limit = Date.now() + PATIENCE;
  while (!(await condition())) {
    if (Date.now() > limit) throw new Error("not enough was received");
    await sleep(50);
  }
}

const messages = (word) =>
  [...Array(COUNT).keys()].map((number) => ({ value: `${word}-${number}`, partition: number % PARTITIONS }));

async function produce(word) {
  const producer = kafka.producer();
  await producer.connect();
  const confirmed = await producer.send({ topic, messages: messages(word) });
  await producer.disconnect();
  return distinct(confirmed.map((one) => one.topicName));
}

// A consumer from the beginning that commits only what it is told to.
async function join(id, more = {}) {
  const one = { found: [], assigned: {}, topics: new Set(),
    consumer: kafka.consumer({ groupId: id, sessionTimeout: 10_000, heartbeatInterval: 500, rebalanceTimeout: 10_000, ...more }) };
  one.consumer.on(one.consumer.events.GROUP_JOIN, ({ payload }) => { one.assigned = payload.memberAssignment; });
  await one.consumer.connect();
  await one.consumer.subscribe({ topics: [topic], fromBeginning: true });
  await one.consumer.run({ autoCommit: false, eachMessage: async ({ topic: name, partition, message }) => {
    one.topics.add(name);
    one.found.push({ partition, offset: message.offset, value: message.value.toString() });
  } });
  return one;
}

const values = (...members) => members.flatMap((one) => one.found.map((record) => record.value));

async function commit(one) {
  const ends = new Map();
  for (const { partition, offset } of one.found) ends.set(partition, (BigInt(offset) + 1n).toString());
  await one.consumer.commitOffsets([...ends].map(([partition, offset]) => ({ topic, partition, offset })));
}

async function withAdmin(act) {
  const admin = kafka.admin();
  await admin.connect();
  try { return await act(admin); } finally { await admin.disconnect(); }
}

const committed = (id) => withAdmin(async (admin) => {
  const [found] = await admin.fetchOffsets({ groupId: id, topics: [topic] });
  return found.partitions.reduce((sum, place) => sum + Math.max(0, Number(place.offset)), 0);
});

async function consume() {
  const one = await join(group);
  try {
    await until(() => one.found.length >= COUNT);
    await commit(one);
  } finally { await one.consumer.disconnect(); }
  return { topics: [...one.topics], values: values(one) };
}

async function share() {
  const first = await join(group), second = await join(group);
  try {
    await until(() => first.assigned[topic]?.length && second.assigned[topic]?.length);
    await produce("w");
    await until(() => distinct(values(first, second)).length >= COUNT);
    const shares = [first.found.length, second.found.length];
    await commit(first);
    await commit(second);
    await second.consumer.disconnect();
    await until(() => first.assigned[topic]?.length === PARTITIONS);  // else records would be read twice
    await produce("x");
    await until(() => distinct(values(first, second)).length >= 2 * COUNT);
    await commit(first);
    const topics = distinct([...first.topics, ...second.topics, ...Object.keys(first.assigned)]);
    return { topics, values: distinct(values(first, second)), shares, committed: await committed(group) };
  } finally { await Promise.all([first.consumer.disconnect(), second.consumer.disconnect()]); }
}

async function transactions() {
  const producer = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const offsets = { consumerGroupId: `${group}-offsets`, topics: [{ topic, partitions: [{ partition: 0, offset: "7" }] }] };
  for (const word of ["aborted", "kept"]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: messages(word) });
    await transaction.sendOffsets(offsets);
    await (word === "kept" ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  const reader = await join(`${group}-reader`, { readUncommitted: false });
  try {
    await until(() => values(reader).filter((value) => value.startsWith("kept")).length >= COUNT);
  } finally { await reader.consumer.disconnect(); }
  const words = values(reader).filter((value) => /^(kept|aborted)/.test(value));
  let offset = 0;
  await until(async () => (offset = await committed(`${group}-offsets`)) > 0);  // the commit is on its way
  return { topics: [...reader.topics], values: words, committed: offset };
}

const admin = () => withAdmin(async (one) => {
  await one.createTopics({ topics: [{ topic: made, numPartitions: 2, replicationFactor: 1 }] });
  let listed = [];
  await until(async () => (listed = await one.listTopics()).includes(made));
  const describe = () => one.fetchTopicMetadata({ topics: [made] }).catch(() => null);  // a broker that has not heard of it
  let described = null;
  await until(async () => (described = await describe()) !== null);
  const { groups } = await one.listGroups();
  const { groups: [about] } = await one.describeGroups([group]);
  await one.deleteTopics({ topics: [made] });
  await until(async () => !(await one.listTopics()).includes(made));
  return { listed, partitions: described.topics[0].partitions.length, groups: groups.map((found) => found.groupId),
    described: about.groupId, members: about.members.length };
});

const brokers = () => withAdmin(async (one) => {
  const { brokers: known } = await one.describeCluster();
  return { addresses: known.map(({ host, port }) => `${host}:${port}`) };
});

// The step traffic: writes and reads by turns, and notes what fails.
const ROUNDS = 6, EACH = 5, MOST_ERRORS = 100, ROUND = 10_000, WHOLE = 45_000;

async function traffic() {
  const began = Date.now(), limit = began + WHOLE;
  const told = { sent: [], acknowledged: [], failed: [], read: [], errors: [] };
  const note = (problem) => { if (told.errors.length < MOST_ERRORS) told.errors.push(String(problem)); };
  const noted = async (doing) => { try { await doing; } catch (problem) { note(problem); } };
  const quick = new Kafka({ clientId: "kafkajs", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, requestTimeout: 5_000 });
  const producer = quick.producer();
  await producer.connect();

  async function write() {
    const batch = [];
    for (let each = 0; each < EACH; each++) {
      const number = told.sent.length;
      told.sent.push(`t-${number}`);
      batch.push({ value: `t-${number}`, partition: number % PARTITIONS });
    }
    try {
      for (const { partition, baseOffset } of await producer.send({ topic, messages: batch })) {
        batch.filter((one) => one.partition === partition).forEach(({ value }, place) =>
          told.acknowledged.push([value, partition, Number(baseOffset) < 0 ? -1 : Number(baseOffset) + place]));
      }
    } catch (problem) { batch.forEach(({ value }) => told.failed.push([value, String(problem)])); }
  }

  async function start() {
    const one = { consumer: quick.consumer({ groupId: group, sessionTimeout: 6_000, heartbeatInterval: 500, rebalanceTimeout: 6_000 }), ends: new Map() };
    one.consumer.on(one.consumer.events.CRASH, ({ payload }) => note(payload.error));
    await noted(one.consumer.connect());
    await noted(one.consumer.subscribe({ topics: [topic], fromBeginning: true }));
    await noted(one.consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
      told.read.push([message.value === null ? null : message.value.toString(), partition, Number(message.offset)]);
      one.ends.set(partition, (BigInt(message.offset) + 1n).toString());
    } }));
    return one;
  }

  const allRead = () => {
    const found = new Set(told.read.map(([value]) => value));
    return told.acknowledged.every(([value]) => found.has(value));
  };
  const readUntil = async (enough, end) => { while (!enough() && Date.now() < end) await sleep(50); };
  let member = null;
  for (let number = 0; number < ROUNDS && Date.now() < limit; number++) {
    if (number === ROUNDS / 2) await noted(member.consumer.disconnect());  // else it would read what it does not commit
    await write();
    if (number === 0 || number === ROUNDS / 2) member = await start();
    await readUntil(allRead, Math.min(limit, Date.now() + ROUND));
    await noted(member.consumer.commitOffsets([...member.ends].map(([partition, offset]) => ({ topic, partition, offset }))));
  }
  await readUntil(allRead, limit);
  await sleep(1_000);
  await noted(member.consumer.disconnect());
  return { ...told, seconds: (Date.now() - began) / 1000 };
}

async function tell(step, act) {
  if (only.length && step !== "client" && !only.includes(step)) return;
  let told;
  try { told = await act(); } catch (problem) { told = { error: String(problem) }; }
  console.log(JSON.stringify({ step, ...told }));
}

(async () => {
  await tell("client", async () => ({ version }));
  await tell("produce", async () => ({ topics: await produce("v") }));
  await tell("consume", consume);
  await tell("group", share);
  await tell("transactions", transactions);
  await tell("admin", admin);
  await tell("brokers", brokers);
  if (only.includes("traffic")) await tell("traffic", traffic);
  process.exit(0);
})();
