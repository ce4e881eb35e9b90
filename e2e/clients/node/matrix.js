// What the Node programs of clientmatrix_test.go have in common, which runs them as
//
//   PROGRAM BOOTSTRAP TOPIC FENCED    with topics of three partitions; FENCED has a rule
//
// The kinds of groups that the brokers have are in MATRIX_GROUPS, apart by spaces. They print "version VERSION", "broker HOST:PORT" for each address that the client
// was told, and "ok NAME", "cannot NAME: WHY" or "failed NAME: WHY" for each thing
// that it was to do.
const PARTITIONS = 3;
const RECORDS = 2; // in each partition
const TIMEOUT = 30000;

// Cannot is of what a client does not have, with why.
class Cannot extends Error {}

const recordsOf = (tag) => Array.from({ length: PARTITIONS * RECORDS }, (_, i) => ({
  partition: i % PARTITIONS, value: `${tag}/${i}/${'x'.repeat(200)}`,
}));
const valuesOf = (tag) => recordsOf(tag).map((r) => r.value);

const delay = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

async function until(holds) {
  for (const deadline = Date.now() + TIMEOUT; !(await holds()); await delay(50)) {
    if (Date.now() > deadline) throw new Error('not so in time');
  }
}

async function step(name, run) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (e) {
    if (!(e instanceof Cannot)) console.error(e);
    console.log(`${e instanceof Cannot ? 'cannot' : 'failed'} ${name}: ${String(e.message).replace(/\s+/g, ' ')}`);
  }
}

// settled waits no longer than a step may take.
function settled(promise, what) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${what()} in time`)), TIMEOUT); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Run is one client's way through everything. The client has connections as kafkajs
// has them, made by
//   producer({ codec, acks, idempotent, transactionalId }), send(producer, topic, records, acks)
//   consumer(group, kind), admin()
//   refused(error)    whether it is Kafka's 1
class Run {
  constructor(client, topic) {
    Object.assign(this, { client, topic, written: [], aborted: [] });
  }

  async produce(tag, settings) {
    const producer = await this.client.producer(settings);
    await producer.connect();
    try {
      await this.client.send(producer, this.topic, recordsOf(tag), settings);
    } finally {
      await producer.disconnect();
    }
    this.written.push(...valuesOf(tag));
  }

  async transact() {
    const producer = await this.client.producer({ transactionalId: this.topic });
    await producer.connect();
    try {
      const first = await producer.transaction();
      await first.send({ topic: this.topic, messages: recordsOf('committed') });
      await first.commit();
      const second = await producer.transaction();
      await second.send({ topic: this.topic, messages: recordsOf('aborted') });
      await second.abort();
    } finally {
      await producer.disconnect();
    }
    this.written.push(...valuesOf('committed'));
    this.aborted.push(...valuesOf('aborted'));
  }

  // Reads all, commits, and has another member go on behind that.
  async group(kind) {
    const group = `${this.topic}-${kind}`;
    await this.read(group, kind, this.written, this.aborted);
    const before = [...this.written, ...this.aborted];
    await this.produce(`behind-${kind}`, {});
    await this.read(group, kind, valuesOf(`behind-${kind}`), before);
  }

  async read(group, kind, expected, forbidden) {
    const consumer = await this.client.consumer(group, kind);
    const missing = new Set(expected);
    const never = new Set(forbidden);
    const next = new Map();
    await consumer.connect();
    try {
      await consumer.subscribe(this.client.subscription(this.topic));
      await settled(new Promise((resolve, reject) => {
        consumer.run({
          ...this.client.running,
          eachMessage: async ({ partition, message }) => {
            const value = message.value.toString();
            if (never.has(value)) reject(new Error(`read ${value.slice(0, 24)}`));
            missing.delete(value);
            next.set(partition, BigInt(message.offset) + 1n);
            if (missing.size === 0) resolve();
          },
        }).catch(reject);
      }), () => `${missing.size} records not read`);
      await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) })));
    } finally {
      await consumer.disconnect();
    }
  }

  async conditions(fenced) {
    const producer = await this.client.producer({});
    await producer.connect();
    const append = async (expected) => {
      const headers = { 'expected-offset': String(expected), 'append-id': String(process.hrtime.bigint()) };
      const [{ baseOffset, offset }] = await this.client.send(producer, fenced, [{ partition: 0, value: 'x', headers }], {});
      return Number(baseOffset || offset);
    };
    try {
      for (const at of [0, 1]) {
        const offset = await append(at);
        if (offset !== at) throw new Error(`appended at ${offset}, not ${at}`);
        const refused = await append(at).then((o) => { throw new Error(`appended at ${o}`); }, (e) => e);
        if (!this.client.refused(refused)) throw refused;
      }
    } finally {
      await producer.disconnect();
    }
  }

  async all(fenced) {
    for (const codec of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
      await step(`codec/${codec}`, () => this.produce(`codec-${codec}`, { codec }));
    }
    for (const acks of ['all', '1', '0']) {
      await step(`acks/${acks}`, () => this.produce(`acks-${acks}`, { acks }));
    }
    await step('idempotent', () => this.produce('idempotent', { idempotent: true }));
    await step('transactions', () => this.transact());
    for (const kind of process.env.MATRIX_GROUPS.split(' ')) {
      await step(`group/${kind}`, () => this.group(kind));
    }
    const admin = this.client.admin();
    await admin.connect();
    await step('admin/topics', () => this.topics(admin, `${this.topic}-made`));
    await step('admin/cluster', () => this.cluster(admin));
    await step('admin/configs', () => this.configs(admin));
    await step('admin/groups', () => this.groups(admin, `${this.topic}-classic`));
    await admin.disconnect();
    await step('conditions', () => this.conditions(fenced));
  }

  async topics(admin, topic) {
    await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 3 }] });
    await until(async () => (await admin.listTopics()).includes(topic));
    await admin.deleteTopics({ topics: [topic] });
  }

  async cluster(admin) {
    if (!admin.describeCluster) throw new Cannot('its admin client has no such call');
    const { brokers } = await admin.describeCluster();
    brokers.forEach(({ host, port }) => console.log(`broker ${host}:${port}`));
    if (brokers.length !== PARTITIONS) throw new Error(`${brokers.length} brokers`);
  }

  async configs(admin) {
    if (!admin.alterConfigs) throw new Cannot('its admin client has no such call');
    const resource = { type: 2, name: this.topic };
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] });
    await until(async () => {
      const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] });
      return resources[0].configEntries[0].configValue === '3600000';
    });
  }

  async groups(admin, group) {
    const { groups } = await admin.listGroups();
    if (!groups.some((g) => g.groupId === group)) throw new Error('the group is not listed');
    const described = await admin.describeGroups([group]);
    if (described.groups[0].groupId !== group) throw new Error('the group is not described');
  }
}

// main runs a client made by clientOf(BOOTSTRAP).
async function main(version, clientOf) {
  const [bootstrap, topic, fenced] = process.argv.slice(2);
  console.log(`version ${version}`);
  await new Run(clientOf(bootstrap), topic).all(fenced);
  process.exit(0); // with whatever still runs
}

module.exports = { Cannot, main };
