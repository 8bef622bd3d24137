// Reads one partition from an offset with kafkajs' own cluster, fetch request and record decoder.
//
// kafkajs' public consumer always joins a group. Reading a partition by itself needs the layer below it.
'use strict'

const Cluster = require('kafkajs/src/cluster')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
const ISOLATION_LEVEL = require('kafkajs/src/protocol/isolationLevel')
const { createLogger } = require('kafkajs/src/loggers')

const FETCH_BYTES = 8 << 20

class PartitionReader {
  constructor({ logLevel, logCreator, ...config }, topic, partition, isolation) {
    this.topic = topic
    this.partition = partition
    this.isolationLevel =
      isolation === 'read_committed' ? ISOLATION_LEVEL.READ_COMMITTED : ISOLATION_LEVEL.READ_UNCOMMITTED
    this.cluster = new Cluster({
      ...config,
      logger: createLogger({ level: logLevel, logCreator }),
      socketFactory: defaultSocketFactory(),
      metadataMaxAge: 300000,
      allowAutoTopicCreation: false,
      isolationLevel: this.isolationLevel,
    })
  }

  async connect() {
    await this.cluster.connect()
    await this.cluster.addTargetTopic(this.topic)
  }

  async disconnect() {
    await this.cluster.disconnect()
  }

  // The messages of the next fetch that lie at or after `offset`; a batch is sent whole, its head may lie before.
  async fetch(offset) {
    const [nodeId] = Object.keys(this.cluster.findLeaderForPartitions(this.topic, [this.partition]))
    const broker = await this.cluster.findBroker({ nodeId })
    const { responses } = await broker.fetch({
      isolationLevel: this.isolationLevel,
      maxWaitTime: 500,
      maxBytes: FETCH_BYTES,
      topics: [
        {
          topic: this.topic,
          partitions: [{ partition: this.partition, fetchOffset: offset.toString(), maxBytes: FETCH_BYTES }],
        },
      ],
    })
    return responses
      .flatMap(response => response.partitions)
      .flatMap(partition => partition.messages)
      .filter(message => !message.isControlRecord && BigInt(message.offset) >= offset)
  }
}

module.exports = { PartitionReader }
