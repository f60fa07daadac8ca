// A writer of protocol 2 in another language, with another SQLite: that of `better-sqlite3`.
//
// Written from the wire part of docs/decisions/0002-write-lock.md and from nothing else. It obeys orders, one a line, and
// answers each with one line. It knows nothing of gates, identities and sums: it polls, as the older users of the protocol do.
//
// Usage: node peer.js <lock path>
'use strict';

const Database = require('better-sqlite3');
const crypto = require('node:crypto');
const fs = require('node:fs');
const readline = require('node:readline');

const POLL_MS = 25;
const RECORD_BYTES = 1024;
const BOUND_MS = 60_000;

const pause = new Int32Array(new SharedArrayBuffer(4));
const sleep = (ms) => Atomics.wait(pause, 0, 0, ms);

// Whether any object of a JSON text has a key twice. `JSON.parse` keeps the last one without a word.
function hasDoubles(text) {
  const objects = [];
  let at = 0;
  for (const token of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]]/g)) {
    at = token.index + token[0].length;
    if (token[0] === '{') objects.push(new Set());
    else if (token[0] === '[') objects.push(null);
    else if (token[0] === '}' || token[0] === ']') objects.pop();
    else if (/^\s*:/.test(text.slice(at))) {
      const key = JSON.parse(token[0]);
      if (objects.at(-1).has(key)) return true;
      objects.at(-1).add(key);
    }
  }
  return false;
}

// Whether the sum of a record fits; null if it has none.
function fits(raw) {
  const start = raw.lastIndexOf(',"check":"');
  if (start < 0) return null;
  let total = 0xcbf29ce484222325n;
  for (const byte of raw.subarray(0, start)) {
    total = BigInt.asUintN(64, (total ^ BigInt(byte)) * 0x100000001b3n);
  }
  return raw.toString('latin1', start + 10, start + 26) === total.toString(16).padStart(16, '0');
}

function orNull(look) {
  try {
    return look();
  } catch (error) {
    return null;
  }
}

const read = (path) => orNull(() => fs.readFileSync(path));
const parse = (raw) => orNull(() => JSON.parse(raw.toString()));
const isPid = (value) => Number.isInteger(value) && value > 0;

// The fields of a record that names somebody.
function named(raw) {
  const fields = raw && parse(raw);
  const isObject = fields !== null && typeof fields === 'object' && !Array.isArray(fields);
  return isObject && isPid(fields.pid) && !hasDoubles(raw.toString()) ? fields : null;
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code !== 'ESRCH';
  }
}

const same = (one, other) => one.dev === other.dev && one.ino === other.ino;

class Lock {
  constructor(path) {
    this.path = path;
    this.mutexPath = `${path}.mutex`;
    this.connection = null;
    this.record = null;
    this.launch = `${process.pid}:0:${crypto.randomBytes(8).toString('hex')}`;
    this.holds = 0;
  }

  open() {
    // Opens the mutex through SQLite, which makes it with 0 bytes if it is missing.
    if (this.connection === null) {
      this.connection = new Database(this.mutexPath, { timeout: 0 });
      this.mutex = fs.statSync(this.mutexPath);
    }
  }

  attempt() {
    this.open();
    try {
      this.connection.exec('BEGIN EXCLUSIVE');
    } catch (error) {
      if (this.connection.inTransaction) this.connection.exec('ROLLBACK');
      else if (error.code === 'SQLITE_BUSY') return false;
      throw error;
    }
    let isOurs = false;
    try {
      const there = fs.statSync(this.mutexPath, { throwIfNoEntry: false });
      if (there === undefined || !same(there, this.mutex)) {
        this.connection.exec('COMMIT');
        this.connection.close();
        this.connection = null;
        return this.attempt();
      }
      isOurs = this.passesFence();
      if (isOurs) this.sign();
    } catch (error) {
      this.connection.exec('ROLLBACK');
      throw error;
    }
    if (!isOurs) this.connection.exec('COMMIT');
    return isOurs;
  }

  passesFence() {
    const there = fs.lstatSync(this.path, { throwIfNoEntry: false });
    if (there === undefined) return this.adopt('wx+');
    if (this.record !== null && same(fs.fstatSync(this.record), there)) return true;
    if (!there.isFile()) return false;
    const raw = read(this.path);
    if (raw === null) return false;
    if (there.size === 0) return this.adopt('r+');
    let fields;
    try {
      fields = JSON.parse(raw.toString());
    } catch (error) {
      // A torn record; anything of another size is not ours to judge.
      return there.size === RECORD_BYTES && this.adopt('r+');
    }
    if (hasDoubles(raw.toString()) || fields === null || typeof fields !== 'object') return false;
    if (fields.protocol === 2) return this.adopt('r+');
    const isEarlier = fields.protocol === undefined || fields.protocol === null || fields.protocol === 1;
    if (!isEarlier || named(raw) === null || isAlive(fields.pid)) return false;
    fs.unlinkSync(this.path);
    return this.adopt('wx+');
  }

  adopt(how) {
    let record;
    try {
      record = fs.openSync(this.path, how, 0o600);
    } catch (error) {
      if (error.code === 'EEXIST' || error.code === 'ENOENT') return false;
      throw error;
    }
    if (this.record !== null) fs.closeSync(this.record);
    this.record = record;
    return true;
  }

  sign() {
    this.holds += 1;
    const now = Date.now();
    const object = JSON.stringify({
      protocol: 2,
      pid: process.pid,
      thread_id: 0,
      token: `${this.launch}:${this.holds}`,
      created_at_ms: now,
      acquiredAt: now,
      role: 'peer',
      argv0: 'peer.js',
      purpose: 'peer',
      label: '',
    });
    const raw = Buffer.alloc(RECORD_BYTES, ' ');
    raw.write(object);
    if (fs.writeSync(this.record, raw, 0, RECORD_BYTES, 0) !== RECORD_BYTES) throw new Error('a short write');
  }

  // Attempts at 0, poll, 2 poll, .. and at the deadline.
  acquire(ms) {
    const end = performance.now() + ms;
    while (!this.attempt()) {
      const left = end - performance.now();
      if (left <= 0) return false;
      sleep(Math.min(POLL_MS, left));
    }
    return true;
  }

  release() {
    this.connection.exec('COMMIT');
  }

  // Holds as protocol 1 did: a file that is complete when it gets its name.
  claim() {
    const made = `${this.path}.${process.pid}`;
    fs.writeFileSync(made, JSON.stringify({ pid: process.pid, token: this.launch, acquiredAt: Date.now() }));
    try {
      fs.linkSync(made, this.path);
      return true;
    } catch (error) {
      if (error.code === 'EEXIST') return false;
      throw error;
    } finally {
      fs.unlinkSync(made);
    }
  }
}

// Whom a record names, in the words of an answer.
function writer(raw) {
  const fields = named(raw) ?? {};
  return `${fields.pid ?? 'None'} ${fields.purpose ?? 'None'}`;
}

// Enters and leaves, and says so at the guarded resource itself.
function rounds(lock, count, holdMs, restMs, name) {
  const log = fs.openSync(`${lock.path}.log`, 'a', 0o600);
  let longest = 0;
  for (let number = 0; number < count; number += 1) {
    const begun = performance.now();
    if (!lock.acquire(BOUND_MS)) return `starved after ${number} rounds`;
    longest = Math.max(longest, performance.now() - begun);
    fs.writeSync(log, `enter ${name} ${number}\n`);
    sleep(holdMs);
    fs.writeSync(log, `leave ${name} ${number}\n`);
    lock.release();
    if (restMs > 0) sleep(restMs);
  }
  fs.closeSync(log);
  return `done ${Math.round(longest)}`;
}

const spell = { true: 'True', false: 'False', null: 'None' };

function obey(lock, [verb, ...rest]) {
  switch (verb) {
    case 'open':
      lock.open();
      return 'opened';
    case 'acquire':
      return lock.acquire(Number(rest[0])) ? 'granted' : `busy ${writer(read(lock.path))}`;
    case 'release':
      lock.release();
      return 'released';
    case 'record': {
      const raw = read(lock.path);
      return `${writer(raw)} sum=${spell[fits(raw)]} size=${raw.length}`;
    }
    case 'rounds':
      return rounds(lock, Number(rest[0]), Number(rest[1]) / 1000, Number(rest[2]) / 1000, rest[3]);
    case 'claim':
      return lock.claim() ? 'claimed' : 'taken';
    case 'unclaim':
      fs.unlinkSync(lock.path);
      return 'unclaimed';
    default:
      return 'what?';
  }
}

function answer(text) {
  fs.writeSync(1, `=> ${text}\n`);
}

const lock = new Lock(process.argv[2]);
answer('ready');
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  try {
    answer(obey(lock, line.split(' ')));
  } catch (error) {
    answer(`error ${error.code ?? error.name}: ${error.message}`);
  }
});
