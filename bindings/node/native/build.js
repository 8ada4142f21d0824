'use strict';

// Compiles the addon: a C compiler, pkg-config and the installed C library are all that it needs.

const { execFileSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const path = require('node:path');

const shim = [__dirname, path.join(__dirname, '../../go')].find((folder) => existsSync(path.join(folder, 'shim.c')));
const run = (command, ...options) => execFileSync(command, options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
const library = run('pkg-config', '--cflags', '--libs', 'bristlecone').trim().split(/\s+/).filter(Boolean);
const headers = require('node-api-headers').include_dir;

run(
  process.env.CC ?? 'cc', '-std=c11', '-D_GNU_SOURCE', '-O2', '-Wall', '-Wextra', '-shared', '-fPIC', '-I', headers, '-I', shim,
  path.join(__dirname, 'addon.c'), ...['shim.c', 'shim_expiring.c'].map((file) => path.join(shim, file)), '-o', path.join(__dirname, 'bristlecone.node'), ...library,
);
