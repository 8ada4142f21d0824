'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { Changes, cursorsOf, lsnOf } = require('./changes');
const { LITTLE, parse } = require('./kinds');
const { BristleconeError, outOfRange, wrongType } = require('./errors');
const { Handle, MANAGE, OP, TYPE, addon, call, callAsync, nameOf, textsOf, unreachable } = require('./native');
const { Batch, Snapshot, Transaction } = require('./several');
const { Tree } = require('./tree');

const FLAGS = { create: 1, createNew: 2, readOnly: 4, follow: 16 };
// Node.js has its own reaction to SIGBUS.
const LEAVE_SIGBUS = 8;
const DOMAINS = ['detected', 'process', 'adr', 'eadr', 'msync', 'journal'];
const DURABILITIES = ['default', 'commit', 'interval', 'memory'];
const DEFAULT_DESIGN = 'nbtree';
const ATTEMPTS_MAX = 256;
const KNOWN = new Set([...Object.keys(FLAGS), 'maxBytes', 'domain', 'durability', 'intervalMs', 'recoveryThreads', 'journal', 'cursorLimit', 'wait', 'signal']);

function oneOf(names, name, what) {
  const at = names.indexOf(name);
  if (at < 0) throw outOfRange(`unknown ${what} ${String(name)}; expected one of ${names.join(', ')}`);
  return at;
}

function count(value, what) {
  if (typeof value !== 'bigint' && !(Number.isSafeInteger(value) && value >= 0)) throw outOfRange(`${what} is no number of 0 or more`);
  if (typeof value === 'bigint' && (value < 0n || value >= 1n << 64n)) throw outOfRange(`${what} is out of range`);
  return value;
}

function argumentsOf(path, options) {
  for (const name of Object.keys(options)) {
    if (!KNOWN.has(name)) throw outOfRange(`unknown option ${name}`);
  }
  const { maxBytes = 0, recoveryThreads = 0, intervalMs = 0, cursorLimit = 0, domain = 'detected', durability = 'default' } = options;
  const flags = Object.entries(FLAGS).reduce((all, [name, flag]) => (options[name] ? all | flag : all), LEAVE_SIGBUS);
  const numbers = [flags, oneOf(DOMAINS, domain, 'domain'), count(maxBytes, 'maxBytes'), count(recoveryThreads, 'recoveryThreads'),
    oneOf(DURABILITIES, durability, 'durability'), count(intervalMs, 'intervalMs'), count(cursorLimit, 'cursorLimit')];
  return { numbers, parts: [nameOf(path), options.journal === undefined ? undefined : nameOf(options.journal)] };
}

/** Tries again for `options.wait` milliseconds while the pool is in use, or has no writer to follow. */
async function opened(path, options) {
  const { numbers, parts } = argumentsOf(path, options);
  const begun = performance.now();
  for (let pause = 1; ; pause = Math.min(2 * pause, 100)) {
    options.signal?.throwIfAborted();
    try {
      return await callAsync(OP.open, numbers, parts);
    } catch (error) {
      const mayChange = error.status === 'in_use' || (error.status === 'no_writer' && options.follow);
      if (!mayChange || performance.now() - begun >= (options.wait ?? 0)) throw error;
    }
    await sleep(pause, undefined, { signal: options.signal });
  }
}

/** Opens a pool. */
async function open(path, options = {}) {
  if (options === null || typeof options !== 'object') throw wrongType('options are no object');
  const { word } = await opened(path, options);
  return new Pool(word, path);
}

/** Packs the options of a design: a word and a name with its zero for each. */
function packOptions(options) {
  const parts = Object.entries(options).map(([name, value]) => {
    const word = new Uint8Array(BigUint64Array.of(BigInt(count(value, name))).buffer);
    return [...word, ...nameOf(name), 0];
  });
  return Uint8Array.from(parts.flat());
}

class Pool {
  constructor(number, path) {
    this.handle = new Handle(number, TYPE.pool);
    this.path = path;
    unreachable.register(this, this.handle);
  }

  get closed() {
    return !this.handle.isOpen;
  }

  #own(owner) {
    unreachable.register(owner, owner.handle);
    return owner;
  }

  #member(result, type) {
    return new Handle(result.word, type, this.handle);
  }

  async #opened(name, op, parts, expireAfter = 0) {
    const handle = this.#member(await callAsync(op, [this.handle, expireAfter], parts), TYPE.tree);
    const { data } = call(OP.treeInfo, [handle]);
    const text = (at) => new TextDecoder().decode(data.subarray(at, data.indexOf(0, at)));
    return this.#own(new Tree(this, handle, name, parse(text(8)), parse(text(72))));
  }

  /** Opens the tree of this name, or creates it with these kinds. Without kinds it must exist. */
  async tree(name, keys, values) {
    if ((keys === undefined) !== (values === undefined)) throw wrongType('one kind of two is missing');
    const kinds = keys === undefined ? [] : [nameOf(parse(keys).name), nameOf(parse(values).name)];
    return this.#opened(name, OP.treeOpen, [nameOf(name), ...kinds]);
  }

  /** Creates a tree of a design, and fails if one of this name exists. */
  async createTree(name, keys, values, { design = DEFAULT_DESIGN, options = {}, expireAfter = 0 } = {}) {
    const kinds = [parse(keys), parse(values)].map((kind) => nameOf(kind.name));
    return this.#opened(name, OP.treeCreate, [nameOf(name), ...kinds, nameOf(design), packOptions(options)], count(expireAfter, 'expireAfter'));
  }

  async trees() {
    const texts = textsOf((await callAsync(OP.trees, [this.handle])).data);
    return Array.from({ length: texts.length / 4 }, (_, at) => {
      const [name, keyKind, valueKind, design] = texts.slice(4 * at);
      return { name, keyKind, valueKind, design };
    });
  }

  async #manage(what, name = '', to = '', bytes = 0) {
    await callAsync(OP.manage, [what, this.handle, count(bytes, 'bytes')], [nameOf(name), nameOf(to)]);
  }

  async dropTree(name) {
    return this.#manage(MANAGE.drop, name);
  }

  async clearTree(name) {
    return this.#manage(MANAGE.clear, name);
  }

  async renameTree(from, to) {
    return this.#manage(MANAGE.rename, from, to);
  }

  async prefault(bytes) {
    return this.#manage(MANAGE.prefault, '', '', bytes);
  }

  async sync() {
    return this.#manage(MANAGE.sync);
  }

  async checkpoint() {
    return this.#manage(MANAGE.checkpoint);
  }

  async pruneJournal() {
    return this.#manage(MANAGE.prune);
  }

  async info() {
    const { data } = await callAsync(OP.poolInfo, [this.handle]);
    const view = new DataView(data.buffer);
    return {
      domain: DOMAINS[view.getUint32(8, LITTLE)], wasClean: view.getInt32(16, LITTLE) !== 0, readOnly: view.getInt32(20, LITTLE) !== 0,
      following: view.getInt32(152, LITTLE) !== 0, fileBytes: Number(view.getBigUint64(32, LITTLE)),
      maxBytes: Number(view.getBigUint64(40, LITTLE)), uuid: new TextDecoder().decode(data.subarray(88, data.indexOf(0, 88))),
    };
  }

  async journalStatus() {
    const { data } = await callAsync(OP.journalStatus, [this.handle]);
    const view = new DataView(data.buffer);
    const word = (at) => view.getBigUint64(at, LITTLE);
    const checkpoint = word(32);
    return {
      durability: DURABILITIES[view.getUint32(8, LITTLE)], intervalMs: view.getUint32(12, LITTLE), lsn: word(16), durableLsn: word(24),
      checkpointLsn: checkpoint === (1n << 64n) - 1n ? undefined : checkpoint, bytesSinceCheckpoint: word(40), syncs: word(56),
      oldestLsn: word(104),
      failed: view.getInt32(96, LITTLE) !== 0,
    };
  }

  /** Opens a stream of changes from an LSN on: 0n for the first change. */
  async changes({ from = 0n } = {}) {
    return this.#changes([this.handle, lsnOf(from)], []);
  }

  /** Opens a stream of changes at a cursor. */
  async changesOf(cursor) {
    return this.#changes([this.handle, 0], [nameOf(cursor)]);
  }

  async #changes(numbers, parts) {
    const result = await this.orPruned(callAsync(OP.changes, numbers, parts));
    return this.#own(new Changes(this.#member(result, TYPE.changes), this));
  }

  /** Creates a cursor at an LSN, or behind the last durable commit; returns its LSN. */
  async createCursor(name, lsn = (1n << 64n) - 1n) {
    const result = await this.orPruned(callAsync(OP.createCursor, [this.handle, lsnOf(lsn)], [nameOf(name)]));
    return BigInt(result.word);
  }

  async dropCursor(name) {
    return this.#manage(MANAGE.dropCursor, name);
  }

  async cursors() {
    return cursorsOf(this.handle);
  }

  /** Adds the oldest LSN to an error for changes that are not kept any more. */
  async orPruned(promise) {
    try {
      return await promise;
    } catch (error) {
      if (error.status === 'pruned') error.oldestLsn = (await this.journalStatus()).oldestLsn;
      throw error;
    }
  }

  async issuesOf(type, handle) {
    let result;
    try {
      result = await callAsync(OP.check, [type, handle]);
    } catch (error) {
      if (error.status !== 'failed' || error.data === undefined) throw error;
      result = error;
    }
    const texts = textsOf(result.data);
    return Array.from({ length: texts.length / 2 }, (_, at) => ({ location: texts[2 * at], what: texts[2 * at + 1] }));
  }

  /** Verifies the pool's own structures; returns the damage: normally none. */
  async check() {
    return this.issuesOf(TYPE.pool, this.handle);
  }

  batch() {
    return this.#own(new Batch(this.#member(call(OP.begin, [TYPE.batch, this.handle, 0]), TYPE.batch), this));
  }

  transaction() {
    return this.#own(new Transaction(this.#member(call(OP.begin, [TYPE.transaction, this.handle, 0]), TYPE.transaction), this));
  }

  async snapshot({ maxBytes = 0 } = {}) {
    const result = await callAsync(OP.begin, [TYPE.snapshot, this.handle, count(maxBytes, 'maxBytes')]);
    return this.#own(new Snapshot(this.#member(result, TYPE.snapshot), this));
  }

  /** Calls a function with a transaction and commits it; calls it again, up to 256 times, after a conflict. */
  async transact(work) {
    for (let attempt = 1; ; attempt++) {
      const transaction = this.transaction();
      try {
        const result = await work(transaction);
        await transaction.commit();
        return result;
      } catch (error) {
        if (!(error instanceof BristleconeError) || error.status !== 'conflict' || attempt === ATTEMPTS_MAX) throw error;
      } finally {
        await transaction.close();
      }
      await sleep(Math.random() * Math.min(attempt, 50) * 0.1);
    }
  }

  /** Closes everything that was opened in the pool, and the pool, after the calls that are under way. */
  async close() {
    await this.handle.closeAfterCalls();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

module.exports = { Pool, open, version: addon.version() };
