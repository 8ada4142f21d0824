'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const bristlecone = require('..');

const MAX_BYTES = 64 << 20;
const DESIGNS = ['sstree', 'nbtree', 'cclbtree', 'lodgetree', 'wotree'];

/** Calls a function with a path in shared memory, if there is some, and removes what it leaves. */
async function withPath(work) {
  const home = fs.existsSync('/dev/shm') ? '/dev/shm' : os.tmpdir();
  const folder = fs.mkdtempSync(path.join(home, 'bristlecone-node-'));
  try {
    return await work(path.join(folder, 'trees.pool'));
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

/** Calls a function with a new pool. */
function withPool(work) {
  return withPath(async (at) => {
    const pool = await bristlecone.open(at, { create: true, maxBytes: MAX_BYTES });
    try {
      return await work(pool, at);
    } finally {
      await pool.close();
    }
  });
}

const failsWith = (status) => ({ code: `ERR_BRISTLECONE_${status.toUpperCase()}` });

module.exports = { DESIGNS, MAX_BYTES, failsWith, withPath, withPool };
