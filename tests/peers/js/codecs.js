// kafkajs brings only gzip. These three are added as its documentation asks; all of them are plain JavaScript or
// WebAssembly, so installing them compiles nothing.
'use strict'

const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')
const snappy = require('kafkajs-snappy')

// Frames that do not say their size are given this much room.
const INFLATED_BYTES = 16 << 20

async function registerCodecs(codecs, types) {
  await zstd.init()
  codecs[types.Snappy] = snappy
  codecs[types.LZ4] = () => ({
    compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
  })
  codecs[types.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstd.decompress(buffer, { defaultHeapSize: INFLATED_BYTES })),
  })
}

module.exports = { registerCodecs }
