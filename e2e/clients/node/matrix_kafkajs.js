// kafkajs for clientmatrix_test.go
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const { version } = require('kafkajs/package.json');
const lz4js = require('lz4js');
const { ZstdCodec } = require('zstd-codec');
const { Cannot, main } = require('./matrix');

const zstd = new Promise((resolve) => { ZstdCodec.run(({ Simple }) => resolve(new Simple())); });

// Brokers take frames alone whose header says that no block needs another, and the
// library says so never; with less than 4 MiB there is but one.
function independent(frame) {
  Buffer.from([0x60, 0x70, 0x73]).copy(frame, 4); // flags, size of blocks, checksum of both
  return frame;
}

// It has gzip itself, and takes others as plug-ins.
const plugins = {
  snappy: () => require('kafkajs-snappy'),
  lz4: () => () => ({
    compress: async (encoder) => independent(Buffer.from(lz4js.compress(encoder.buffer))),
    decompress: async (buffer) => Buffer.from(lz4js.decompress(buffer)),
  }),
  zstd: () => () => ({
    compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
  }),
};
for (const [name, plugin] of Object.entries(plugins)) CompressionCodecs[CompressionTypes[name.toUpperCase()]] = plugin();

const codecOf = (name) => CompressionTypes[(name || 'none').toUpperCase()];

main(version, (bootstrap) => {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING });
  return {
    producer: ({ idempotent, transactionalId }) => kafka.producer({
      idempotent, ...(transactionalId && { transactionalId, maxInFlightRequests: 1 }),
    }),
    send: (producer, topic, messages, { codec, acks }) => producer.send({
      topic, messages, acks: { 0: 0, 1: 1 }[acks] ?? -1, compression: codecOf(codec),
    }),
    consumer: (groupId, kind) => {
      if (kind === 'consumer') throw new Cannot('it has no `group.protocol`');
      if (kind === 'share') throw new Cannot('it has no share consumer');
      return kafka.consumer({ groupId });
    },
    subscription: (topic) => ({ topic, fromBeginning: true }),
    running: { autoCommit: false },
    admin: () => kafka.admin(),
    refused: (e) => e.type === 'OFFSET_OUT_OF_RANGE' || e.cause?.type === 'OFFSET_OUT_OF_RANGE',
  };
});
