'use strict';

const { encode } = require('./kinds');
const { call, callAsync, OP, TYPE, WRITE } = require('./native');
const { Scan } = require('./scan');
const { async, sync } = require('./tree');

/** Adds a change to a batch or a transaction. */
function change(what, to, tree, key, value) {
  const given = value === undefined ? undefined : encode(tree.values, value);
  call(OP.change, [what, to.handle.type, to.handle, tree.handle], [encode(tree.keys, key), given]);
  return to;
}

/** Returns a value that is not absent. */
function present(tree, value) {
  if (value === undefined) encode(tree.values, value);
  return value;
}

class Member {
  constructor(handle, pool) {
    this.handle = handle;
    this.pool = pool;
  }

  /** Ends it, after the calls that are under way. Again, it does nothing. */
  async close() {
    await this.handle.closeAfterCalls();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

/** All trees of a pool as of one instant. What changes meanwhile is kept in memory: close it soon. */
class Snapshot extends Member {
  async get(tree, key) {
    return async(tree.lookup(key, TYPE.snapshot, this.handle));
  }

  getSync(tree, key) {
    return sync(tree.lookup(key, TYPE.snapshot, this.handle));
  }

  scan(tree, options) {
    return new Scan(tree, this, options);
  }

  get bytes() {
    return call(OP.snapshotBytes, [this.handle]).word;
  }
}

class Committed extends Member {
  put(tree, key, value) {
    return change(WRITE.put, this, tree, key, present(tree, value));
  }

  remove(tree, key) {
    return change(WRITE.remove, this, tree, key);
  }

  /** Applies the changes atomically, and ends it. */
  async commit() {
    try {
      await callAsync(OP.commit, [this.handle.type, this.handle]);
    } catch (error) {
      // These leave the handle open.
      if (error.status !== 'in_use' && error.status !== 'forked') this.handle.forget();
      throw error;
    }
    this.handle.forget();
  }
}

/** Changes of any trees of a pool, which `commit` applies together, if all conditions hold. */
class Batch extends Committed {
  expect(tree, key, value) {
    return change(WRITE.expect, this, tree, key, value);
  }
}

/** All trees of a pool as of one instant, with its own writes, which `commit` applies if nothing that it read has changed. */
class Transaction extends Committed {
  get isTransaction() {
    return true;
  }

  get(tree, key) {
    return sync(tree.lookup(key, TYPE.transaction, this.handle));
  }

  scan(tree, options) {
    return new Scan(tree, this, options);
  }
}

module.exports = { Batch, Snapshot, Transaction };
