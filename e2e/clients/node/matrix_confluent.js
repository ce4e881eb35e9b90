// @confluentinc/kafka-javascript for clientmatrix_test.go
const { KafkaJS } = require('@confluentinc/kafka-javascript');
const { version } = require('@confluentinc/kafka-javascript/package.json');
const { Cannot, main } = require('./matrix');

const { Kafka, ErrorCodes, logLevel } = KafkaJS;

main(version, (bootstrap) => {
  const kafka = new Kafka({ kafkaJS: { brokers: bootstrap.split(','), logLevel: logLevel.NOTHING } });
  return {
    producer: ({ codec, acks, idempotent, transactionalId }) => kafka.producer({
      kafkaJS: {
        acks: { 0: 0, 1: 1 }[acks] ?? -1,
        compression: codec || 'none',
        ...(transactionalId ? { transactionalId } : { idempotent: Boolean(idempotent) }),
      },
    }),
    send: (producer, topic, messages) => producer.send({ topic, messages }),
    consumer: (groupId, kind) => {
      if (kind === 'share') throw new Cannot('it has no share consumer');
      return kafka.consumer({
        kafkaJS: { groupId, fromBeginning: true, autoCommit: false },
        ...(kind === 'consumer' && { 'group.protocol': 'consumer' }),
      });
    },
    subscription: (topic) => ({ topic }),
    running: {},
    admin: () => kafka.admin(),
    refused: (e) => e.code === ErrorCodes.ERR_OFFSET_OUT_OF_RANGE,
  };
});
