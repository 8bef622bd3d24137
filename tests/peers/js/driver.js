// kafkajs as a peer: `produce` and `consume` as tests/peers/drivers.py describes them.
'use strict'

const { parseArgs } = require('node:util')
const readline = require('node:readline')

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const { registerCodecs } = require('./codecs')
const { PartitionReader } = require('./partition_reader')

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const EXIT_TOO_FEW = 3

const fromBase64 = text => (text === null ? null : Buffer.from(text, 'base64'))
const toBase64 = bytes => (bytes === null || bytes === undefined ? null : bytes.toString('base64'))
const print = value => process.stdout.write(JSON.stringify(value) + '\n')

// Standard output belongs to the JSON lines, so kafkajs must log to standard error.
const logToStderr = () => ({ namespace, log }) => process.stderr.write(`[${namespace}] ${JSON.stringify(log)}\n`)

const kafkaConfig = bootstrap => ({
  clientId: 'tidelog-peer-kafkajs',
  brokers: bootstrap.split(','),
  connectionTimeout: 10000,
  logLevel: logLevel.WARN,
  logCreator: logToStderr,
})

// kafkajs takes headers as an object whose repeated names hold arrays.
function headersIn(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    const values = headers[name] || (headers[name] = [])
    values.push(fromBase64(value))
  }
  return headers
}

function headersOut(headers) {
  return Object.entries(headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, toBase64(value)])
  )
}

async function readRecords() {
  const records = []
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line.trim() !== '') records.push(JSON.parse(line))
  }
  return records
}

function toMessage(record) {
  return {
    key: fromBase64(record.key),
    value: fromBase64(record.value),
    headers: headersIn(record.headers),
    partition: record.partition,
    timestamp: record.timestamp === undefined ? undefined : String(record.timestamp),
  }
}

// One `send` becomes one batch per partition, so the driver is what keeps batches under the size limit.
function chunk(records, batchBytes) {
  const chunks = []
  let size = Infinity
  for (const record of records) {
    const bytes = (record.key || '').length + (record.value || '').length
    if (size + bytes > batchBytes) {
      chunks.push([])
      size = 0
    }
    chunks[chunks.length - 1].push(record)
    size += bytes
  }
  return chunks
}

async function sendChunk(producer, options, records) {
  const reply = await producer.send({
    topic: options.topic,
    acks: options.acks === 'all' ? -1 : Number(options.acks),
    compression: CODECS[options.codec],
    messages: records.map(toMessage),
  })
  const next = new Map(reply.map(({ partition, baseOffset }) => [partition, BigInt(baseOffset)]))
  return records.map(({ partition }) => {
    if (!next.has(partition)) return { partition, offset: -1 } // acks=0 has no reply
    const offset = next.get(partition)
    next.set(partition, offset + 1n)
    return { partition, offset: Number(offset) }
  })
}

async function produce(options) {
  const records = await readRecords()
  const producer = new Kafka(kafkaConfig(options.bootstrap)).producer({
    createPartitioner: () => ({ message }) => message.partition,
    idempotent: options.idempotent === 'true',
    maxInFlightRequests: options.idempotent === 'true' ? 1 : null,
    retry: { retries: 5 },
  })
  await producer.connect()
  try {
    for (const part of chunk(records, Number(options['batch-bytes']))) {
      try {
        for (const report of await sendChunk(producer, options, part)) print(report)
      } catch (error) {
        if (error.type === undefined) throw error
        for (const { partition } of part) print({ partition, error: error.type })
      }
    }
  } finally {
    await producer.disconnect()
  }
}

async function consume(options) {
  const wanted = Number(options.count)
  const partition = Number(options.partition)
  const deadline = Date.now() + Number(options['timeout-ms'])
  const reader = new PartitionReader(kafkaConfig(options.bootstrap), options.topic, partition, options.isolation)
  let seen = 0
  await reader.connect()
  try {
    let offset = BigInt(options.from)
    while (seen < wanted && Date.now() < deadline) {
      for (const message of await reader.fetch(offset)) {
        if (seen === wanted) break
        offset = BigInt(message.offset) + 1n
        seen += 1
        print({
          partition,
          offset: Number(message.offset),
          timestamp: Number(message.timestamp),
          key: toBase64(message.key),
          value: toBase64(message.value),
          headers: headersOut(message.headers),
        })
      }
    }
  } finally {
    await reader.disconnect()
  }
  if (seen < wanted) {
    process.stderr.write(`got ${seen} of ${wanted} records within ${options['timeout-ms']} ms\n`)
    process.exitCode = EXIT_TOO_FEW
  }
}

const COMMANDS = {
  produce: {
    run: produce,
    options: {
      bootstrap: { type: 'string' },
      topic: { type: 'string' },
      codec: { type: 'string', default: 'none' },
      acks: { type: 'string', default: 'all' },
      idempotent: { type: 'string', default: 'false' },
      'batch-bytes': { type: 'string', default: '1000000' },
    },
  },
  consume: {
    run: consume,
    options: {
      bootstrap: { type: 'string' },
      topic: { type: 'string' },
      partition: { type: 'string', default: '0' },
      from: { type: 'string', default: '0' },
      count: { type: 'string' },
      isolation: { type: 'string', default: 'read_uncommitted' },
      'timeout-ms': { type: 'string', default: '30000' },
    },
  },
}

async function main() {
  const [name, ...args] = process.argv.slice(2)
  const command = COMMANDS[name]
  if (command === undefined) throw new Error(`unknown command ${name}: expected ${Object.keys(COMMANDS).join(' or ')}`)
  const { values } = parseArgs({ args, options: command.options })
  await registerCodecs(CompressionCodecs, CompressionTypes)
  await command.run(values)
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exitCode = 1
})
