'use strict';

const { BristleconeError } = require('./errors');
const { Changes } = require('./changes');
const { ExpiringTree } = require('./expiring');
const { Pool, open, version } = require('./pool');
const { Batch, Snapshot, Transaction } = require('./several');
const { Scan } = require('./scan');
const { Tree } = require('./tree');

exports.BristleconeError = BristleconeError;
exports.Batch = Batch;
exports.Changes = Changes;
exports.ExpiringTree = ExpiringTree;
exports.Pool = Pool;
exports.Scan = Scan;
exports.Snapshot = Snapshot;
exports.Transaction = Transaction;
exports.Tree = Tree;
exports.open = open;
exports.version = version;
