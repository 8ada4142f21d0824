'use strict';

// A program that writes until it is killed, and reports each number once its writes have returned.

const fs = require('node:fs');
const { open } = require('..');
const { MAX_BYTES } = require('./common');

async function main() {
  const pool = await open(process.argv[2], { create: true, maxBytes: MAX_BYTES });
  const words = await pool.tree('words', 'u64', 'u64');
  const texts = await pool.tree('texts', 'str', 'bytes');
  for (let number = 0n; ; number++) {
    words.putSync(number, ~number & 0xffffffffffffffffn);
    await texts.put(`item ${number}`, new Uint8Array(Number(number % 100n)));
    fs.writeSync(1, `${number}\n`);
  }
}

main();
