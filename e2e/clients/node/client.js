// kafkajs for refusals_test.go, which lists the commands
const readline = require('readline');
const { Kafka, logLevel } = require('kafkajs');
const { version } = require('kafkajs/package.json');

const say = (report) => console.log(JSON.stringify(report));
const done = ({ tag }, offset = -1) => say({ tag, offset: Number(offset) });

// An error of the protocol has the broker's code and its name; where kafkajs
// gave up retrying it is the cause of another.
function failed({ tag }, e) {
  const told = e.cause && e.code === undefined ? e.cause : e;
  const kind = told.type || e.name;
  say({ tag, error: { kind, code: told.code || 0, message: e.message } });
}

const connect = ({ bootstrap }) => new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });

async function open(command) {
  const producer = connect(command).producer({
    idempotent: command.idempotent,
    ...(command.transactional_id && { transactionalId: command.transactional_id, maxInFlightRequests: 1 }),
  });
  await producer.connect();
  return { client: producer, sender: producer, acks: command.acks === 'all' ? -1 : Number(command.acks) };
}

async function send({ sender, acks }, command) {
  const { topic, partition, value, timestamp } = command;
  const headers = Object.fromEntries((command.headers || []).map((h) => [h.name, h.value]));
  const message = { partition, value, headers, ...(timestamp && { timestamp: String(timestamp) }) };
  const [{ baseOffset }] = await sender.send({ topic, acks, messages: [message] });
  return baseOffset;
}

async function next(command) {
  const admin = connect(command).admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsets(command.topic);
  await admin.disconnect();
  return offsets.find((p) => p.partition === command.partition).high;
}

async function main() {
  say({ version });
  const producers = new Map();
  const steps = {
    open: async (command) => { producers.set(command.producer, await open(command)); },
    begin: async (command, producer) => { producer.sender = await producer.client.transaction(); },
    commit: async (command, producer) => { await producer.sender.commit(); },
    abort: async (command, producer) => { await producer.sender.abort(); },
    next,
    close: async (command, producer) => { await producer.client.disconnect(); },
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    const producer = producers.get(command.producer);
    if (command.do === 'send') {
      send(producer, command).then((offset) => done(command, offset), (e) => failed(command, e));
      continue;
    }
    try {
      done(command, await steps[command.do](command, producer));
    } catch (e) {
      failed(command, e);
    }
  }
  process.exit(0); // with whatever still runs
}

main();
