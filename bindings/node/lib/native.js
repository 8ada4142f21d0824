'use strict';

const { BristleconeError, STATUSES, closed, outOfRange, wrongType } = require('./errors');
const addon = require('../native/bristlecone.node');

// The lists of native/addon.c and shim.h.
const OPERATIONS = [
  'open', 'close', 'commit', 'begin', 'snapshotBytes', 'poolInfo', 'journalStatus', 'trees', 'check', 'manage', 'treeOpen',
  'treeCreate', 'treeInfo', 'len', 'get', 'contains', 'write', 'change', 'getMany', 'putMany', 'removeMany', 'removeRange', 'fetch',
  'changes', 'changesNext', 'changesAdvance', 'createCursor', 'cursors', 'treeExpiring', 'expiringWrite', 'expiry', 'setExpiry',
  'removeExpired',
];
const OP = Object.freeze(Object.fromEntries(OPERATIONS.map((name, at) => [name, at])));
const TYPE = Object.freeze({ pool: 0, tree: 1, iterator: 2, batch: 3, snapshot: 4, transaction: 5, changes: 6 });
const WRITE = Object.freeze({ put: 0, exchange: 1, insert: 2, update: 3, remove: 4, swap: 5, expect: 6 });
const MANAGE = Object.freeze({ sync: 0, checkpoint: 1, prune: 2, prefault: 3, drop: 4, clear: 5, rename: 6, dropCursor: 7 });
const STATUS = Object.freeze({ ok: 0, inUse: 3, absent: 4, present: 32, differs: 33 });
const OUTCOMES = new Set([STATUS.ok, STATUS.absent, STATUS.present, STATUS.differs]);

/** Calls that are under way, with the objects that they use: these are reachable until the call has ended. */
const underWay = new Map();
let calls = 0;

/** Returns a result, or throws its error. */
function verify(result, used, hasCount) {
  const isOutcome = OUTCOMES.has(result.status) && result.message === undefined;
  if (isOutcome) return result;
  const status = STATUSES[result.status] ?? 'bug';
  if (status === 'usage' && used.some((handle) => !handle.isOpen)) throw closed();
  const error = new BristleconeError(status, result.message ?? status, hasCount ? result.word : undefined);
  // What a check has found.
  if (result.data?.length > 0) Object.defineProperty(error, 'data', { value: result.data });
  throw error;
}

function numbersOf(used) {
  return used.map((each) => (each instanceof Handle ? each.number : each));
}

const handlesOf = (used) => used.filter((each) => each instanceof Handle);

/** Makes a call on this thread. Handles among the numbers must be open. */
function call(op, numbers, parts = [], hasCount = false) {
  return verify(addon.call(op, numbersOf(numbers), parts), handlesOf(numbers), hasCount);
}

/** Makes a call on a thread of libuv. */
async function callAsync(op, numbers, parts = [], hasCount = false) {
  const id = calls++;
  const handles = handlesOf(numbers);
  const promise = addon.callAsync(op, numbersOf(numbers), parts);
  underWay.set(id, { promise, handles });
  try {
    return verify(await promise, handles, hasCount);
  } finally {
    underWay.delete(id);
  }
}

/** Waits until no call is under way on handles that a test accepts. */
async function settled(isMeant) {
  for (;;) {
    const meant = [...underWay.values()].filter((each) => each.handles.some(isMeant));
    if (meant.length === 0) return;
    await Promise.allSettled(meant.map((each) => each.promise));
  }
}

/** A handle of the C library: a number, which the library looks up, so that any value of it is safe. */
class Handle {
  #number;
  #isOpen = true;
  /** Whether it waits for calls that are under way, and refuses others. */
  #isClosing = false;

  constructor(number, type, pool) {
    this.#number = number;
    this.type = type;
    /** The handle of the pool, or none. */
    this.pool = pool;
    /** The open handles of a pool, by their numbers. */
    this.members = pool ? undefined : new Map();
    pool?.members.set(number, this);
  }

  get isOpen() {
    return this.#isOpen && !this.#isClosing && (this.pool?.isOpen ?? true);
  }

  get number() {
    if (!this.isOpen) throw closed();
    return this.#number;
  }

  /** Forgets the number: the library has closed it. */
  forget() {
    this.#isOpen = false;
    this.pool?.members.delete(this.#number);
  }

  /** Whether a handle is this one, or belongs to it. */
  covers(other) {
    return other === this || other.pool === this;
  }

  /** Closes it, and what belongs to it. */
  #close() {
    if (!this.#isOpen) return;
    for (const member of this.members?.values() ?? []) member.#close();
    closeNumber(this.type, this.#number);
    this.forget();
  }

  /** Closes it after the calls that are under way. */
  async closeAfterCalls() {
    this.#isClosing = true;
    try {
      await settled((other) => this.covers(other));
      this.#close();
    } finally {
      this.#isClosing = false;
    }
  }
}

function closeNumber(type, number) {
  return verify(addon.call(OP.close, [type, number], []), []);
}

/** Closes handles whose owners are unreachable. */
const unreachable = new FinalizationRegistry((handle) => {
  handle.closeAfterCalls().catch(() => {});
});

/** Returns the bytes of a name. A string of C ends at its first zero, so that names contain none. */
function nameOf(name) {
  if (typeof name !== 'string') throw wrongType('a name is not a string');
  if (name.includes('\0') || !name.isWellFormed()) throw outOfRange('a name contains a zero byte, or half of a pair of surrogates');
  return new TextEncoder().encode(name);
}

/** Splits strings that end with zeros. */
function textsOf(data) {
  return data === undefined ? [] : new TextDecoder().decode(data).split('\0').slice(0, -1);
}

module.exports = { Handle, MANAGE, OP, STATUS, TYPE, WRITE, addon, call, callAsync, nameOf, textsOf, unreachable };
