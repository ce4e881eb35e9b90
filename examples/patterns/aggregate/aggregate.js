// aggregate.js BOOTSTRAP TOPIC NAME...: accounts whose events stand in a log. Each NAME
// opens every account, if nobody has, and takes 100 at a time from each until too little
// is left. An event is appended only if the state that it was decided on is the newest.
const { randomUUID } = require('crypto');
const { EventEmitter, once } = require('events');
const { Kafka, logLevel } = require('kafkajs');

const accounts = [0, 1, 2, 3];

// decide gives the event that follows from an account's state, or null.
function decide(account, name) {
  if (!account) return { type: 'opened', amount: 450, by: name };
  if (account.balance < 100) return null;
  return { type: 'withdrawn', amount: 100, by: name };
}

class Ledger {
  constructor(bootstrap, topic) {
    const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
    this.topic = topic;
    this.admin = kafka.admin();
    this.producer = kafka.producer(); // sends again by itself: the append-id makes that harmless
    this.consumer = kafka.consumer({ groupId: `ledger-${randomUUID()}`, maxWaitTimeInMs: 100 }); // it shares with nobody
    this.read = new EventEmitter();
    this.next = []; // by partition: the state is that of all events below
    this.accounts = new Map(); // by number: { balance, version }
  }

  async open() {
    await Promise.all([this.admin.connect(), this.producer.connect(), this.consumer.connect()]);
    this.next = (await this.admin.fetchTopicOffsets(this.topic)).map(() => 0);
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true });
    await this.consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => this.apply(partition, message) });
  }

  async close() {
    await this.consumer.disconnect();
    await Promise.all([this.admin.disconnect(), this.producer.disconnect()]);
  }

  apply(partition, message) {
    const offset = Number(message.offset);
    if (offset < this.next[partition]) return; // read again after a rebalance
    if (offset === this.sent?.at && partition === this.sent.partition) this.sent.found = message.headers['append-id'].toString();
    const { account, type, amount, version } = JSON.parse(message.value);
    const before = this.accounts.get(account) ?? { balance: 0, version: 0 };
    const balance = before.balance + (type === 'opened' ? amount : -amount);
    if (version !== before.version + 1) this.broken = `offset ${offset} of partition ${partition}: version ${version} follows ${before.version}`;
    this.accounts.set(account, { balance, version });
    this.next[partition] = offset + 1;
    this.read.emit('event');
  }

  // catchUp waits until the state is that of the partition's end.
  async catchUp(partition) {
    const { high } = (await this.admin.fetchTopicOffsets(this.topic)).find((p) => p.partition === partition);
    while (this.next[partition] < Number(high)) await once(this.read, 'event');
    if (this.broken) throw new Error(this.broken);
  }

  // handle decides on the newest state, until the event is in the log or there is none.
  async handle(account, name) {
    const partition = account % this.next.length; // all events of an account are in one
    for (;;) {
      await this.catchUp(partition);
      const state = this.accounts.get(account);
      const event = decide(state, name);
      if (!event) return false;
      const value = JSON.stringify({ account, version: (state?.version ?? 0) + 1, ...event });
      if (await this.append(partition, this.next[partition], value)) return true;
      // Refused: what came between may be of another account. Then the same is decided
      // again, and appended behind it.
    }
  }

  async append(partition, at, value) {
    const headers = { 'expected-offset': String(at), 'append-id': randomUUID() };
    this.sent = { partition, at };
    for (;;) {
      try {
        const [{ baseOffset }] = await this.producer.send({ topic: this.topic, messages: [{ partition, headers, value }] });
        if (Number(baseOffset) === at) return true;
        throw new Error(`appended at ${baseOffset}, not at ${at}: is there a rule for the topic here?`);
      } catch (e) {
        if (e.code === 1) return false; // refused: nothing of it is in the log
        const unknown = e.code === -1 || e.retriable || e.name === 'KafkaJSNumberOfRetriesExceeded';
        if (!unknown) throw e; // not appended, and would not be next time
      }
      // Unknown: the log tells. If it has nothing at that place yet, the same record is
      // sent again, under the same append-id.
      await this.catchUp(partition);
      if (this.next[partition] > at) return this.sent.found === headers['append-id'];
    }
  }
}

async function main([bootstrap, topic, ...names]) {
  const ledgers = names.map(() => new Ledger(bootstrap, topic));
  await Promise.all(ledgers.map((ledger) => ledger.open()));
  await Promise.all(names.map(async (name, i) => {
    let events = 0;
    for (const left = [...accounts]; left.length > 0;) {
      const account = left.shift();
      if (await ledgers[i].handle(account, name)) {
        events++;
        left.push(account);
      }
    }
    console.log(`${name} appended ${events} events`);
    await ledgers[i].close();
  }));
}

main(process.argv.slice(2)).catch((e) => {
  console.error(e.message);
  process.exit(1);
});
