'use strict';

const { isUint8Array } = require('node:util').types;
const { corrupted, outOfRange, wrongType } = require('./errors');

// A kind has a `name`, `put(writer, value)`, `take(reader)`, and whether its bytes within others begin with their length
// (`isCounted`), and whether one of its values is null (`isNullable`).

const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
const ELEMENTS_MAX = 8;
const DEPTH_MAX = 48;
const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

class Writer {
  constructor() {
    this.bytes = new Uint8Array(64);
    this.view = new DataView(this.bytes.buffer);
    this.length = 0;
  }

  room(more) {
    const at = this.length;
    this.length += more;
    if (this.length > this.bytes.length) {
      const grown = new Uint8Array(Math.max(2 * this.bytes.length, this.length));
      grown.set(this.bytes);
      this.bytes = grown;
      this.view = new DataView(grown.buffer);
    }
    return at;
  }

  put(bytes) {
    const at = this.room(bytes.length);
    this.bytes.set(bytes, at);
  }
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  skip(count, kind) {
    const at = this.at;
    if (count > this.bytes.length - at) throw corrupted(kind);
    this.at += count;
    return at;
  }

  rest() {
    const at = this.at;
    this.at = this.bytes.length;
    return this.bytes.subarray(at);
  }
}

const describe = (value) => (value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`);
const refuse = (value, kind) => wrongType(`${describe(value)}, where the kind is ${kind}`);

function number(name, bytes, check, set, get) {
  return {
    name,
    put(to, value) {
      check(value, name);
      const at = to.room(bytes);
      to.view[set](at, value, LITTLE);
    },
    take(from) {
      const at = from.skip(bytes, name);
      return from.view[get](at, LITTLE);
    },
  };
}

function integer(name, bits, min, max) {
  const what = `${name[0] === 'u' ? 'Uint' : 'Int'}${bits}`;
  const check = (value) => {
    if (typeof value !== 'number') throw refuse(value, name);
    if (!Number.isInteger(value) || value < min || value > max) throw outOfRange(`${value} is no ${name}`);
  };
  return number(name, bits / 8, check, `set${what}`, `get${what}`);
}

function checkBig(value, name, min, max) {
  if (typeof value !== 'bigint') throw refuse(value, `${name}: a BigInt`);
  if (value < min || value > max) throw outOfRange(`${value} is no ${name}`);
}

function bigInteger(name, min, max) {
  const what = name === 'u64' ? 'BigUint64' : 'BigInt64';
  return number(name, 8, (value) => checkBig(value, name, min, max), `set${what}`, `get${what}`);
}

function wide(name, min, max) {
  return {
    name,
    put(to, value) {
      checkBig(value, name, min, max);
      const at = to.room(16);
      to.view.setBigUint64(at + (LITTLE ? 0 : 8), BigInt.asUintN(64, value), LITTLE);
      to.view.setBigUint64(at + (LITTLE ? 8 : 0), BigInt.asUintN(64, value >> 64n), LITTLE);
    },
    take(from) {
      const at = from.skip(16, name);
      const low = from.view.getBigUint64(at + (LITTLE ? 0 : 8), LITTLE);
      const high = from.view.getBigUint64(at + (LITTLE ? 8 : 0), LITTLE);
      const both = (high << 64n) | low;
      return min < 0n ? BigInt.asIntN(128, both) : both;
    },
  };
}

function float(name, bits) {
  const check = (value) => {
    if (typeof value !== 'number') throw refuse(value, name);
    if (bits === 32 && !Object.is(Math.fround(value), value)) throw outOfRange(`${value} is no f32: use Math.fround`);
  };
  return number(name, bits / 8, check, `setFloat${bits}`, `getFloat${bits}`);
}

const bool = {
  name: 'bool',
  put(to, value) {
    if (typeof value !== 'boolean') throw refuse(value, 'bool');
    const at = to.room(1);
    to.view.setUint8(at, value ? 1 : 0);
  },
  take(from) {
    return bit(from, 'bool');
  },
};

function bit(from, name) {
  const at = from.skip(1, name);
  const found = from.view.getUint8(at);
  if (found > 1) throw corrupted(name);
  return found === 1;
}

const char = {
  name: 'char',
  put(to, value) {
    if (typeof value !== 'string') throw refuse(value, 'char');
    const point = value.codePointAt(0);
    if (point === undefined || String.fromCodePoint(point) !== value || !value.isWellFormed()) {
      throw outOfRange(`${JSON.stringify(value)} is no char: one code point`);
    }
    const at = to.room(4);
    to.view.setUint32(at, point, LITTLE);
  },
  take(from) {
    const at = from.skip(4, 'char');
    const point = from.view.getUint32(at, LITTLE);
    if (point > 0x10ffff) throw corrupted('char');
    return String.fromCodePoint(point);
  },
};

function text(name) {
  return {
    name,
    isCounted: true,
    put(to, value) {
      if (typeof value !== 'string') throw refuse(value, name);
      if (!value.isWellFormed()) throw outOfRange(`a string with half of a pair of surrogates, where the kind is ${name}`);
      to.put(encoder.encode(value));
    },
    take(from) {
      try {
        return decoder.decode(from.rest());
      } catch {
        throw corrupted(name);
      }
    },
  };
}

function binary(name) {
  return {
    name,
    isCounted: true,
    put(to, value) {
      if (!isUint8Array(value)) throw refuse(value, `${name}: a Uint8Array`);
      to.put(value);
    },
    take: (from) => from.rest().slice(),
  };
}

function array(length) {
  const name = `[u8; ${length}]`;
  return {
    name,
    put(to, value) {
      if (!isUint8Array(value)) throw refuse(value, `${name}: a Uint8Array`);
      if (value.length !== length) throw outOfRange(`${value.length} bytes are no ${name}`);
      to.put(value);
    },
    take(from) {
      const at = from.skip(length, name);
      return from.bytes.slice(at, at + length);
    },
  };
}

const unit = {
  name: '()',
  isNullable: true,
  put(to, value) {
    if (value !== null) throw refuse(value, '(): null');
  },
  take: () => null,
};

function pack(kind, to, value) {
  if (!kind.isCounted) {
    kind.put(to, value);
    return;
  }
  const at = to.room(8);
  kind.put(to, value);
  to.view.setBigUint64(at, BigInt(to.length - at - 8), LITTLE);
}

function unpack(kind, from) {
  if (!kind.isCounted) return kind.take(from);
  const at = from.skip(8, kind.name);
  const length = from.view.getBigUint64(at, LITTLE);
  if (length > BigInt(from.bytes.length)) throw corrupted(kind.name);
  const begin = from.skip(Number(length), kind.name);
  return kind.take(new Reader(from.bytes.subarray(begin, begin + Number(length))));
}

// Nothing is null, and a value that could be null itself is in an array of one.
function option(inner) {
  const name = `Option<${inner.name}>`;
  return {
    name,
    isNullable: true,
    put(to, value) {
      const at = to.room(1);
      to.view.setUint8(at, value === null ? 0 : 1);
      if (value === null) return;
      if (inner.isNullable && !(Array.isArray(value) && value.length === 1)) throw refuse(value, `${name}: null, or an array of one`);
      pack(inner, to, inner.isNullable ? value[0] : value);
    },
    take(from) {
      if (!bit(from, name)) return null;
      const value = unpack(inner, from);
      return inner.isNullable ? [value] : value;
    },
  };
}

// The time in milliseconds since 1970, or 0n, and the value.
function expiring(inner) {
  return { ...tuple([BY_NAME.get('u64'), inner]), name: `Expiring<${inner.name}>` };
}

function tuple(elements) {
  const names = elements.map((element) => element.name).join(', ');
  const name = elements.length === 1 ? `(${names},)` : `(${names})`;
  return {
    name,
    put(to, value) {
      if (!Array.isArray(value)) throw refuse(value, name);
      if (value.length !== elements.length) throw outOfRange(`an array of ${value.length} is no ${name}`);
      elements.forEach((element, at) => pack(element, to, value[at]));
    },
    take: (from) => elements.map((element) => unpack(element, from)),
  };
}

const NAMED = [
  integer('u8', 8, 0, 0xff), integer('u16', 16, 0, 0xffff), integer('u32', 32, 0, 0xffffffff),
  integer('i8', 8, -0x80, 0x7f), integer('i16', 16, -0x8000, 0x7fff), integer('i32', 32, -0x80000000, 0x7fffffff),
  bigInteger('u64', 0n, (1n << 64n) - 1n), bigInteger('i64', -(1n << 63n), (1n << 63n) - 1n),
  wide('u128', 0n, (1n << 128n) - 1n), wide('i128', -(1n << 127n), (1n << 127n) - 1n),
  float('f32', 32), float('f64', 64), bool, char, text('str'), text('json'), binary('bytes'), binary('postcard'), unit,
];
const BY_NAME = new Map(NAMED.map((kind) => [kind.name, kind]));

class Parser {
  constructor(name) {
    this.name = name;
    this.rest = name;
  }

  unknown() {
    return outOfRange(`unknown kind ${JSON.stringify(this.name)}`);
  }

  skips(part) {
    const found = this.rest.startsWith(part);
    if (found) this.rest = this.rest.slice(part.length);
    return found;
  }

  take(depth) {
    if (depth > DEPTH_MAX) throw this.unknown();
    const length = /^\[u8; (0|[1-9][0-9]{0,6})\]/.exec(this.rest);
    if (length) {
      this.rest = this.rest.slice(length[0].length);
      return array(Number(length[1]));
    }
    if (this.skips('Option<')) {
      const inner = this.take(depth + 1);
      if (!this.skips('>')) throw this.unknown();
      return option(inner);
    }
    if (this.skips('Expiring<')) {
      const inner = this.take(depth + 1);
      if (!this.skips('>')) throw this.unknown();
      return expiring(inner);
    }
    const named = /^(\(\)|[a-z0-9]+)/.exec(this.rest);
    if (named && BY_NAME.has(named[0])) {
      this.rest = this.rest.slice(named[0].length);
      return BY_NAME.get(named[0]);
    }
    if (this.skips('(')) return this.takeTuple(depth);
    throw this.unknown();
  }

  takeTuple(depth) {
    const elements = [];
    while (elements.length < ELEMENTS_MAX) {
      elements.push(this.take(depth + 1));
      if (this.skips(elements.length === 1 ? ',)' : ')')) return tuple(elements);
      if (!this.skips(', ')) break;
    }
    throw this.unknown();
  }
}

/** Returns the kind with a name. */
function parse(name) {
  if (typeof name !== 'string') throw wrongType(`${describe(name)}, where the name of a kind is expected`);
  const parser = new Parser(name);
  const kind = parser.take(0);
  if (parser.rest !== '') throw parser.unknown();
  return kind;
}

function encode(kind, value) {
  const to = new Writer();
  kind.put(to, value);
  return to.bytes.subarray(0, to.length);
}

function decode(kind, stored) {
  const from = new Reader(stored);
  const value = kind.take(from);
  if (from.at !== stored.length) throw corrupted(kind.name);
  return value;
}

module.exports = { LITTLE, decode, encode, parse };
