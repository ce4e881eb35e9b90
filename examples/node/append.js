// append.js BOOTSTRAP TOPIC: appends one record to partition 0 at its next
// offset, then asks for the same offset again and is refused.
const { randomUUID } = require('crypto');
const { Kafka, logLevel } = require('kafkajs');

async function main([bootstrap, topic]) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  const producer = kafka.producer();
  await Promise.all([admin.connect(), producer.connect()]);
  const { high: next } = (await admin.fetchTopicOffsets(topic)).find((p) => p.partition === 0);
  for (const value of ['first', 'second']) {
    const headers = { 'expected-offset': next, 'append-id': randomUUID() };
    try {
      const [{ baseOffset }] = await producer.send({ topic, messages: [{ partition: 0, headers, value }] });
      console.log('appended at', baseOffset);
    } catch (e) {
      if (e.code === 1) {
        console.log('refused:', e.message);
      } else { // the record may be in the log: read the partition from next
        console.log('not known to be appended:', e.message);
      }
    }
  }
  await Promise.all([admin.disconnect(), producer.disconnect()]);
}

main(process.argv.slice(2));
