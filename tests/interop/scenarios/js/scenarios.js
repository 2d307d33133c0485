// kafkajs: all that it can ask a cluster, and what it is told. An old client: nothing flexible, ApiVersions 2.
//
//   node scenarios.js BOOTSTRAP PREFIX PHASE
//
// The last line of output is a JSON object: a result for each scenario, an error as # and its number where it is one of
// Kafka's.
"use strict";

const { EventEmitter } = require("node:events");
const {
  AclOperationTypes, AclPermissionTypes, AclResourceTypes, CompressionTypes, ConfigResourceTypes, Kafka, logLevel,
  ResourcePatternTypes,
} = require("kafkajs");

const RECORDS = 20;
const PARTITIONS = 4;
const MORE = 8; // records after the first members of a group are gone
const PATIENCE_MS = 180_000;
const POLL_MS = 50; // of what a broker tells nobody by itself
const ONCE = { retries: 0 }; // what would be asked again is told, not waited out
const ALL = -1;

const [bootstrap, prefix, phase] = process.argv.slice(2);
const results = {};
const topic = name => `${prefix}-${name}`;
const numbers = (from, until) => Array.from({ length: until - from }, (_, each) => String(from + each));

// A Kafka of its own for each client: those of one share what they believe to be committed.
const kafka = retry => new Kafka({
  brokers: bootstrap.split(","), clientId: "scenarios", connectionTimeout: 10_000, logLevel: logLevel.NOTHING, retry,
});

// Runs a scenario; an error is its result.
async function tell(scenario, act) {
  if (scenario in results) throw new Error(scenario);
  try {
    results[scenario] = (await act()) ?? null;
  } catch (error) {
    results[scenario] = { error: word(error) };
  }
}

// Kafka's number of an error behind a #, or what the client calls it. What refused a part of a request is inside.
function word(error) {
  for (let each = error; each; each = each.cause ?? inner(each)) {
    const number = each.code ?? each.errorCode;
    if (Number.isInteger(number)) return `#${number}`;
  }
  return error.name;
}

const inner = error => error.errors?.[0] ?? error.groups?.[0] ?? error.partitions?.[0].error;

// Asks until the answer shows what was done: Kafka's brokers learn of it after its caller.
async function eventually(ask, holds) {
  for (const end = Date.now() + PATIENCE_MS; ;) {
    const found = await ask();
    if (holds(found)) return found;
    if (Date.now() > end) throw new Error(`still ${JSON.stringify(found)}`);
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
  }
}

async function connected(client, act) {
  await client.connect();
  try {
    return await act(client);
  } finally {
    await client.disconnect();
  }
}

const administer = (act, retry) => connected(kafka(retry).admin(), act);

// One request for each record; what each was told, "" for acknowledged.
function produce(name, values, { key = "k", partitions = 1, acks = ALL, compression, retry, ...settings } = {}) {
  return connected(kafka(retry).producer(settings), async producer => {
    const told = [];
    for (const [number, value] of values.entries()) {
      const messages = [{ key, value, partition: number % partitions }];
      try {
        await producer.send({ topic: name, messages, acks, compression });
        told.push("");
      } catch (error) {
        told.push(word(error));
      }
    }
    return told;
  });
}

// A consumer that commits nothing by itself: what it was assigned, where it is, and all that it has read.
class Member {
  constructor(group, changed) {
    this.client = kafka().consumer({ groupId: topic(group), heartbeatInterval: 500, maxWaitTimeInMs: 200 });
    this.assigned = [];
    this.positions = new Map();
    this.read = [];
    this.changed = changed;
    this.client.on(this.client.events.GROUP_JOIN, ({ payload }) => {
      this.assigned = Object.values(payload.memberAssignment).flat();
      changed.emit("change");
    });
    this.client.on(this.client.events.CRASH, ({ payload: { error, restart } }) => {
      changed.crash = restart ? null : error;
      changed.emit("change");
    });
  }

  async start(name) {
    await this.client.connect();
    await this.client.subscribe({ topic: name, fromBeginning: true });
    await this.client.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.positions.set(partition, Number(message.offset) + 1);
        this.read.push(message);
        this.changed.emit("change");
      },
    });
  }

  commit(name) {
    return this.client.commitOffsets(
      this.assigned.map(partition => ({ topic: name, partition, offset: String(this.positions.get(partition)) })),
    );
  }

  // It has so many partitions, and has read each up to this offset.
  isAt(count, offset) {
    return this.assigned.length === count && this.assigned.every(each => this.positions.get(each) === offset);
  }
}

// Resolves once it holds, looked at whenever a member has changed.
function until(changed, holds) {
  return new Promise((resolve, reject) => {
    const patience = setTimeout(() => reject(new Error("not in time")), PATIENCE_MS);
    const look = () => {
      if (!changed.crash && !holds()) return;
      clearTimeout(patience);
      changed.off("change", look);
      changed.crash ? reject(changed.crash) : resolve();
    };
    changed.on("change", look);
    look();
  });
}

// Members read a topic until it holds, do what comes then, and leave.
async function reading(group, name, count, holds, then) {
  const changed = new EventEmitter();
  const members = Array.from({ length: count }, () => new Member(group, changed));
  try {
    await Promise.all(members.map(each => each.start(name)));
    await until(changed, () => holds(members));
    return await then(members);
  } finally {
    await Promise.all(members.map(each => each.client.disconnect()));
  }
}

const values = members => new Set(members.flatMap(each => each.read.map(({ value }) => Number(value))));

async function data() {
  const one = topic("one");
  const ways = {
    "acks=0": { acks: 0 }, "acks=1": { acks: 1 }, "acks=all": {},
    idempotent: { idempotent: true, maxInFlightRequests: 1 }, gzip: { compression: CompressionTypes.GZIP },
  };
  for (const [way, settings] of Object.entries(ways)) {
    await tell(`produce, ${way}`, () => produce(one, numbers(0, RECORDS), settings));
  }
  const all = RECORDS * Object.keys(ways).length;
  await tell("read by a group", () =>
    reading("readers", one, 1, ([reader]) => reader.isAt(1, all), ([reader]) => reader.read.length));
  await tell("consume out of range", () =>
    reading("lost", one, 1, ([reader]) => reader.isAt(1, all), async ([reader]) => {
      reader.read = [];
      reader.client.seek({ topic: one, partition: 0, offset: "10000" });
      await until(reader.changed, () => reader.read.length >= all);
      return [Number(reader.read[0].offset), reader.read.length];
    }));
  await tell("keys and headers", async () => {
    const sent = { key: "k", timestamp: "1000", partition: 0 };
    const messages = [{ ...sent, value: "v", headers: { name: "value", list: ["a", "b"] } }, { ...sent, value: null }];
    await connected(kafka().producer(), producer => producer.send({ topic: topic("four"), messages }));
    return reading("headers", topic("four"), 1, ([reader]) => reader.read.length === 2, ([reader]) =>
      reader.read.map(({ key, value, headers, timestamp }) => [key, value, headers, timestamp]));
  });
  await tell("produce a record that is too large", () => produce(topic("small"), ["x".repeat(9000)]));
  await tell("produce without a key to a compacted topic", () => produce(topic("compacted"), ["x"], { key: null }));
  await tell("produce to an unknown topic", () =>
    produce(topic("none"), ["x"], { retry: ONCE, allowAutoTopicCreation: false }));
}

const offsetsOf = (group, topics) => administer(async admin => {
  const found = await admin.fetchOffsets({ groupId: topic(group), topics });
  return found.flatMap(({ partitions }) => partitions.map(({ partition, offset }) => [partition, Number(offset)]))
    .sort(([a], [b]) => a - b);
});

const created = (name, numPartitions, replicationFactor, configs = {}) => administer(admin => admin.createTopics({
  topics: [{
    topic: name, numPartitions, replicationFactor,
    configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
  }],
  waitForLeaders: false, // that fails where the broker that is asked does not know the topic yet
}));

const partitionsOf = name => administer(async admin => {
  const { topics: [found] } = await admin.fetchTopicMetadata({ topics: [name] });
  return [found.partitions.length];
});

// Two members share the topic, commit and close; a third is given what nobody has read.
async function group() {
  const name = topic("four-classic");
  await created(name, PARTITIONS, 3);
  await produce(name, numbers(0, RECORDS), { partitions: PARTITIONS });
  const shared = both => both.every(each => each.isAt(PARTITIONS / 2, RECORDS / PARTITIONS));
  const read = await reading("classic", name, 2, shared, async both => {
    await Promise.all(both.map(each => each.commit(name)));
    return values(both).size;
  });
  const committed = (await offsetsOf("classic", [name])).map(([, offset]) => offset);
  await produce(name, numbers(RECORDS, RECORDS + MORE), { partitions: PARTITIONS });
  const then = await reading("classic", name, 1, found => values(found).size === MORE, found => [...values(found)]);
  return { read, committed, then: then.sort((a, b) => a - b) };
}

async function groups() {
  await tell("group, classic", group);
  const four = topic("four-classic");
  await tell("list groups", () => administer(async admin => {
    const { groups: found } = await admin.listGroups();
    return found.filter(({ groupId }) => groupId.startsWith(`${prefix}-`))
      .map(({ groupId, protocolType }) => [groupId.slice(prefix.length), protocolType]).sort();
  }));
  for (const [what, name] of Object.entries({ "a group": "classic", "an unknown group": "nobody" })) {
    await tell(`describe ${what}`, () => administer(async admin => {
      const { groups: [found] } = await admin.describeGroups([topic(name)]);
      return [`#${found.errorCode}`, found.state, found.protocolType, found.protocol, found.members.length];
    }));
    await tell(`offsets of ${what}`, () => offsetsOf(name, [four]));
  }
  await tell("alter offsets of a group", () => administer(admin =>
    admin.setOffsets({ groupId: topic("classic"), topic: four, partitions: [{ partition: 0, offset: "3" }] })));
  await tell("offsets of a group after that", () => offsetsOf("classic", [four]));
  await tell("reset offsets of a group", async () => {
    await administer(admin => admin.resetOffsets({ groupId: topic("classic"), topic: four, earliest: true }));
    return offsetsOf("classic", [four]);
  });
  await tell("delete a group", () => administer(admin => admin.deleteGroups([topic("classic")]))
    .then(([each]) => `#${each.errorCode}`));
  await tell("delete an unknown group", () => administer(admin => admin.deleteGroups([topic("nobody")])));
}

const TOPIC = ConfigResourceTypes.TOPIC;
const altered = (name, config, value) => administer(admin => admin.alterConfigs({
  validateOnly: false, resources: [{ type: TOPIC, name, configEntries: [{ name: config, value }] }],
})).then(() => null);

const configsOf = name => administer(async admin => {
  const configNames = ["cleanup.policy", "min.insync.replicas", "retention.ms"];
  const { resources: [found] } = await admin.describeConfigs({ resources: [{ type: TOPIC, name, configNames }] });
  return Object.fromEntries(found.configEntries.map(each => [each.configName, each.configValue]).sort());
});

async function topics() {
  const name = topic("admin"), other = topic("other");
  await tell("create a topic", () => created(name, 2, 3, { "retention.ms": "100000" }));
  await tell("create a topic again", () => created(name, 2, 3));
  await tell("create with a name that cannot be", () => created("no good", 1, 1));
  await tell("create with too many replicas", () => created(other, 1, 4));
  await tell("create without partitions", () => created(other, 0, 1));
  await tell("create with an unknown config", () => created(other, 1, 1, { "no.such": "1" }));
  await tell("describe topics", () => eventually(() => partitionsOf(name).catch(() => []), ([count]) => count === 2));
  await tell("describe an unknown topic", () => partitionsOf(other));
  await tell("list topics", () => administer(async admin => (await admin.listTopics()).includes(name)));
  const counts = { "add partitions": [name, 4], "take partitions away": [name, 1],
    "add partitions to an unknown topic": [other, 2] };
  for (const [what, [changed, count]] of Object.entries(counts)) {
    await tell(what, () => administer(admin =>
      admin.createPartitions({ topicPartitions: [{ topic: changed, count }] })));
  }
  await tell("partitions after that", () => eventually(() => partitionsOf(name), ([count]) => count === 4));
  await tell("describe configs", () => configsOf(name));
  await tell("describe configs of an unknown topic", () => configsOf(other));
  await tell("alter configs as before KIP-339", () => altered(name, "retention.ms", "200000"));
  await tell("alter an unknown config as before KIP-339", () => altered(name, "no.such", "1"));
  await tell("configs after all this", () =>
    eventually(() => configsOf(name), found => found["retention.ms"] === "200000"));
}

async function cluster() {
  const name = topic("admin"), one = topic("one");
  await tell("describe the cluster", () => administer(async admin => {
    const { brokers, controller } = await admin.describeCluster();
    return [brokers.map(({ nodeId }) => nodeId).sort(), controller > 0];
  }));
  for (const [what, field] of [["earliest", "low"], ["latest", "high"]]) {
    await tell(`list offsets, ${what}`, () => administer(async admin =>
      Number((await admin.fetchTopicOffsets(one))[0][field])));
  }
  await tell("list offsets, by time", () => administer(async admin =>
    Number((await admin.fetchTopicOffsetsByTimestamp(one, 1))[0].offset)));
  await tell("list offsets of an unknown topic", () =>
    administer(admin => admin.fetchTopicOffsets(topic("none")), ONCE));
  for (const [what, offset] of Object.entries({ "delete records": "5", "delete records beyond the end": "1000000" })) {
    await tell(what, () => administer(async admin => {
      await admin.fetchTopicOffsets(one); // what deletes records wants to know their leaders before
      await admin.deleteTopicRecords({ topic: one, partitions: [{ partition: 0, offset }] });
      return [Number((await admin.fetchTopicOffsets(one))[0].low)];
    }));
  }
  const reassigned = replicas => administer(admin => admin.alterPartitionReassignments({
    topics: [{ topic: name, partitionAssignment: [{ partition: 0, replicas }] }],
  }));
  await tell("reassign", () => reassigned([1, 2]));
  await tell("reassign to an unknown broker", () => reassigned([1, 9]));
  await tell("list reassignments", () => eventually(
    () => administer(async admin => (await admin.listPartitionReassignments({})).topics.length), found => found === 0));
  await tell("describe ACLs without an authorizer", () => administer(admin => admin.describeAcls({
    resourceType: AclResourceTypes.ANY, resourcePatternType: ResourcePatternTypes.ANY,
    operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY,
  })));
  await tell("delete a topic", () => administer(admin => admin.deleteTopics({ topics: [name] })));
  await tell("delete an unknown topic", () =>
    administer(admin => admin.deleteTopics({ topics: [topic("other")] }), ONCE));
}

async function belowMinIsr() {
  for (const [acks, required] of [["all", ALL], ["1", 1]]) {
    await tell(`produce below min.insync.replicas, acks=${acks}`, () =>
      produce(topic("strict"), ["x"], { acks: required, retry: ONCE }));
  }
}

async function main() {
  for (const part of phase === "below" ? [belowMinIsr] : [data, groups, topics, cluster]) await part();
  console.log(JSON.stringify(results, function (key, value) {
    return Buffer.isBuffer(this[key]) ? String(this[key]) : value;
  }));
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
