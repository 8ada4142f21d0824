'use strict';

const STATUSES = {
  1: 'failed', 2: 'usage', 3: 'in_use', 4: 'absent', 5: 'corrupted', 6: 'full', 34: 'forked', 35: 'read_only',
  36: 'durability_lost', 38: 'bug', 39: 'conflict', 40: 'snapshot_too_old', 41: 'no_writer', 42: 'pruned',
};

const codeOf = (status) => `ERR_BRISTLECONE_${status.toUpperCase()}`;

/** An error of the library: `status` is the reason, `code` the same for programs that compare codes. */
class BristleconeError extends Error {
  constructor(status, message, done) {
    super(message);
    this.name = 'BristleconeError';
    this.status = status;
    this.code = codeOf(status);
    if (done !== undefined) this.done = done;
  }
}

/** Returns the error for data of another type. */
function wrongType(message) {
  return Object.assign(new TypeError(message), { status: 'usage', code: codeOf('usage') });
}

/** Returns the error for data of the type that are out of range. */
function outOfRange(message) {
  return Object.assign(new RangeError(message), { status: 'usage', code: codeOf('usage') });
}

const closed = () => new BristleconeError('closed', 'the handle or its pool was closed');
const corrupted = (kind) => new BristleconeError('corrupted', `the stored bytes are no ${kind}`);

module.exports = { BristleconeError, STATUSES, closed, corrupted, outOfRange, wrongType };
