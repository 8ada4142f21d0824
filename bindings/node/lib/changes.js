'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { LITTLE, decode, parse } = require('./kinds');
const { BristleconeError, outOfRange, wrongType } = require('./errors');
const { callAsync, OP, STATUS } = require('./native');

const WHATS = [undefined, 'put', 'remove', 'create', 'drop', 'rename', 'clear'];
const WORDS = 13;
const NO_NAME = (1n << 64n) - 1n;
const PAUSE_MAX_MS = 20;
const decoder = new TextDecoder();

/** Checks an LSN. */
function lsnOf(value) {
  if (typeof value !== 'bigint') throw wrongType(`an LSN is a BigInt, and not a ${typeof value}`);
  if (value < 0n || value >= 1n << 64n) throw outOfRange(`${value} is no LSN`);
  return value;
}

/** Reads words and the parts behind them. */
class Chunk {
  constructor(data) {
    this.data = data;
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    this.at = 0;
  }

  get hasMore() {
    return this.at < this.data.length;
  }

  words(count) {
    const words = Array.from({ length: count }, (_, at) => this.view.getBigUint64(this.at + 8 * at, LITTLE));
    this.at += 8 * count;
    return words;
  }

  part(bytes) {
    const begin = this.at;
    this.at += Number(bytes);
    return this.data.subarray(begin, this.at);
  }

  text(bytes) {
    return decoder.decode(this.part(bytes));
  }
}

/** The durable changes of a pool with a journal, in the order of their LSNs. */
class Changes {
  #kinds = new Map();
  #isBusy = false;
  /** After an error of the stream all later calls throw it. */
  #failed;

  constructor(handle, pool) {
    this.handle = handle;
    this.pool = pool;
  }

  /** Returns the next commit, or `undefined` if none is durable yet. */
  async tryNext() {
    return this.#alone(() => this.#read());
  }

  /** Iterates over the commits that are durable, without waiting for others. */
  async *[Symbol.asyncIterator]() {
    for (let commit = await this.tryNext(); commit; commit = await this.tryNext()) yield commit;
  }

  /** Iterates over the commits, and waits for more until it is aborted. */
  follow({ signal } = {}) {
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrongType('signal is no AbortSignal');
    return this.#follow(signal);
  }

  async *#follow(signal) {
    for (let pause = 1; ; pause = Math.min(2 * pause, PAUSE_MAX_MS)) {
      signal?.throwIfAborted();
      const commit = await this.tryNext();
      if (commit === undefined) {
        // Throws the reason of the signal, at the next round.
        await sleep(pause, undefined, { signal }).catch(() => {});
      } else {
        pause = 1;
        yield commit;
      }
    }
  }

  /** Moves the cursor of the stream, durably: usually to the `nextLsn` of the last commit whose effects are durable. */
  async advance(lsn) {
    const to = lsnOf(lsn);
    await this.#alone(() => this.pool.orPruned(callAsync(OP.changesAdvance, [this.handle, to])));
  }

  /** Closes the stream, after the call that is under way. Its cursor stays. */
  async close() {
    await this.handle.closeAfterCalls();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  async #alone(work) {
    if (this.#isBusy) throw new BristleconeError('in_use', 'another call uses the stream of changes');
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      this.#isBusy = false;
    }
  }

  async #read() {
    if (this.#failed) throw this.#failed;
    try {
      return await this.pool.orPruned(this.#commit());
    } catch (error) {
      if (error.status !== 'closed') this.#failed = error;
      throw error;
    }
  }

  /** Collects the changes of a commit. */
  async #commit() {
    let commit;
    for (;;) {
      const { status, data, word } = await callAsync(OP.changesNext, [this.handle, 0]);
      if (status === STATUS.absent) return undefined;
      for (const chunk = new Chunk(data ?? new Uint8Array()); chunk.hasMore; ) {
        const { lsn, nextLsn, time, change } = this.#take(chunk);
        commit ??= { lsn, nextLsn, time, changes: [] };
        commit.changes.push(change);
      }
      if (word === 1) return commit;
    }
  }

  #take(chunk) {
    const [lsn, nextLsn, time, what, existed, treeId, newTreeId, ...lengths] = chunk.words(WORDS);
    const change = {
      what: WHATS[Number(what)] ?? 'other',
      tree: chunk.text(lengths[0]),
      treeId: Number(treeId),
      keyKind: chunk.text(lengths[1]),
      valueKind: chunk.text(lengths[2]),
    };
    const [key, value] = [chunk.part(lengths[3]), chunk.part(lengths[4])];
    if (lengths[5] !== NO_NAME) change.renamedTo = chunk.text(lengths[5]);
    if (newTreeId !== treeId) change.newTreeId = Number(newTreeId);
    if (change.what === 'put' || change.what === 'remove') change.key = this.#datum(change.keyKind, key);
    if (change.what === 'put') change.value = this.#datum(change.valueKind, value);
    // All bits are set if the write did not look.
    if (existed <= 1n) change.existed = existed === 1n;
    return { lsn, nextLsn, time: new Date(Number(time)), change };
  }

  #datum(name, bytes) {
    let kind = this.#kinds.get(name);
    if (!kind) this.#kinds.set(name, (kind = parse(name)));
    return decode(kind, bytes);
  }
}

/** Returns the cursors of a pool. */
async function cursorsOf(pool) {
  const cursors = [];
  const { data } = await callAsync(OP.cursors, [pool]);
  for (const chunk = new Chunk(data ?? new Uint8Array()); chunk.hasMore; ) {
    const [lsn, pinnedBytes, time, dropped, bytes] = chunk.words(5);
    cursors.push({ name: chunk.text(bytes), lsn, pinnedBytes, time: new Date(Number(time)), dropped: dropped !== 0n });
  }
  return cursors;
}

module.exports = { Changes, cursorsOf, lsnOf };
