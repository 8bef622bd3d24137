// kafkajs brings only gzip. These three are added as its documentation asks; all of them are plain JavaScript or
// WebAssembly, so installing them compiles nothing.
'use strict'

const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')
const snappy = require('kafkajs-snappy')

// Frames that do not say their size are given this much room.
const INFLATED_BYTES = 16 << 20

// lz4js marks every frame as one of dependent blocks, which Kafka's Java client refuses. A frame of a single block, as
// any batch of ours makes (a block holds 4 MiB), depends on nothing: its header may say so, with its checksum.
const INDEPENDENT_BLOCKS_HEADER = Buffer.from([0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73])

function compressLz4(data) {
  const frame = Buffer.from(lz4.compress(data))
  INDEPENDENT_BLOCKS_HEADER.copy(frame)
  return frame
}

async function registerCodecs(codecs, types) {
  await zstd.init()
  codecs[types.Snappy] = snappy
  codecs[types.LZ4] = () => ({
    compress: async encoder => compressLz4(encoder.buffer),
    decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
  })
  codecs[types.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstd.decompress(buffer, { defaultHeapSize: INFLATED_BYTES })),
  })
}

module.exports = { registerCodecs }
