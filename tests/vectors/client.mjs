// A client in JavaScript, written from docs/wire.md alone. `node client.mjs FILE` prints the messages of the cases in a JSON file.

import { readFileSync } from "node:fs";

const ALL = 1n << 64n;

export function sum(numbers) {
  let q = [...numbers];
  while (q.length > 1) {
    const h = Math.ceil(q.length / 2);
    for (let i = 0; i < q.length - h; i++) q[i] += q[h + i];
    q = q.slice(0, h);
  }
  return q[0];
}

// -- shared choices ---------------------------------------------------------------------------------------------

function* shared(seed, number, from = 0n) {
  for (let j = from; ; j++) {
    let c = [j + 1n, 0n, number, 0n];
    let k0 = seed.readBigUInt64LE(0);
    let k1 = seed.readBigUInt64LE(8);
    for (let round = 0; round < 10; round++) {
      const p = 0xd2e7470ee14c6c93n * c[0];
      const q = 0xca5a826395121157n * c[2];
      c = [(q >> 64n) ^ c[1] ^ k0, q % ALL, (p >> 64n) ^ c[3] ^ k1, p % ALL];
      k0 = (k0 + 0x9e3779b97f4a7c15n) % ALL;
      k1 = (k1 + 0xbb67ae8584caa73bn) % ALL;
    }
    yield* c;
  }
}

export function subset(seed, number, d, s) {
  const words = shared(seed, number);
  const sent = new Set();
  for (let j = d - s; j < d; j++) {
    const mask = j === 0 ? 0n : (1n << BigInt(j.toString(2).length)) - 1n;
    let t;
    do t = Number(words.next().value & mask);
    while (t > j);
    sent.add(sent.has(t) ? j : t);
  }
  return [...sent].sort((a, b) => a - b);
}

// -- private choices: next() is the next random word --------------------------------------------------------------

function below(bound, count, next) {
  const b = BigInt(bound);
  const words = Array.from({ length: count }, () => next());
  const refused = (w) => w >= ALL - (ALL % b);
  while (words.some(refused)) words.forEach((w, i) => refused(w) && (words[i] = next()));
  return words.map((w) => Number(w % b));
}

// Numbers to compare with are [numerator, denominator].
function step([numerator, denominator], bits) {
  const scaled = numerator << bits;
  return [scaled / denominator, [scaled % denominator, denominator]];
}

function less(w, p, next) {
  for (;;) {
    const [f, r] = step(p, 64n);
    if (w !== f || r[0] === 0n) return w < f;
    p = r;
    w = next();
  }
}

function lessOfAll(ps, next) {
  const words = ps.map(() => next());
  return ps.map((p, i) => less(words[i], p, next));
}

// A double of [0, 1] as a quotient.
function quotient(x) {
  let bits = 0n;
  while (!Number.isInteger(x)) {
    x *= 2;
    bits++;
  }
  return [BigInt(x), 1n << bits];
}

function signs(ys, next) {
  const words = ys.map(() => next());
  return ys.map((y, i) => {
    const [f, r] = step(quotient(Math.abs(y)), 63n);
    const v = words[i] >> 1n;
    if (v < f || (v === f && r[0] > 0n && less(next(), r, next))) return y > 0;
    return (words[i] & 1n) === 1n;
  });
}

function places(m, next) {
  const count = m.messages ?? 1;
  const near = below(m.near, count, next);
  const other = below(2 ** m.bits - m.near, count, next);
  const n = BigInt(m.weight_of_all_near);
  const p = [n, n + BigInt(m.weight_of_all_others)];
  return lessOfAll(near.map(() => p), next).map((is, i) => (is ? near[i] : m.near + other[i]));
}

// -- inputs ---------------------------------------------------------------------------------------------------------

function over(x, radius) {
  if (!x.every(Number.isFinite)) throw new Error("a coordinate is not finite");
  return x.map((v) => {
    if (Math.abs(v) < 1e-140 * radius) return 0;
    return Math.min(Math.max(v, -1e300 * radius), 1e300 * radius) / radius;
  });
}

const cut = (y) => y.map((v) => Math.min(Math.max(v, -1), 1));

export function length(y) {
  const m = Math.max(...y.map(Math.abs), 1e-300);
  return Math.sqrt(sum(y.map((v) => (v / m) * (v / m)))) * m;
}

export function inputs(m, x, clip) {
  if (x.length !== m.dimension) throw new Error("wrong length");
  const y = over(x, m.radius);
  if (m.inputs === "box") {
    if (!clip && y.some((v) => Math.abs(v) > 1 + 1e-9)) throw new Error("a coordinate is too large");
    return cut(y);
  }
  const l = length(y);
  if (!clip && (l > 1 + 1e-9 || (m.inputs === "sphere" && l < 1 - 1e-9))) throw new Error("a length that is not allowed");
  if (m.inputs === "sphere") {
    if (l === 0) return y.map((_, i) => (i === 0 ? 1 : 0));
    return y.map((v) => v / l);
  }
  return y.map((v) => v / Math.max(l, 1));
}

// -- codes of one vector --------------------------------------------------------------------------------------------

const orders = new Map();

function texts(bits) {
  const set = (v) => v.toString(2).replaceAll("0", "").length;
  if (!orders.has(bits)) {
    const all = Array.from({ length: 2 ** bits }, (_, v) => [set(v), v]).sort(([m, a], [n, b]) => m - n || a - b);
    orders.set(bits, all.map(([, v]) => v));
  }
  return orders.get(bits);
}

function signsCode(m, y, seed, number, next) {
  const sent = subset(seed, number, m.dimension, m.bits);
  let text = 0;
  signs(sent.map((i) => y[i]), next).forEach((up, i) => (text += up ? 2 ** i : 0));
  return [text ^ texts(m.bits)[places(m, next)[0]]];
}

function coordinatesCodes(m, y, seed, number, next) {
  const sent = subset(seed, number, m.dimension, m.count);
  const [a, b, c, e] = m.weights.map(BigInt);
  const values = m.inputs === "ball" ? cut(y) : y;
  const ups = signs(sent.map((i) => values[i]), next);
  return lessOfAll(ups.map((up) => (up ? [c, c + e] : [a, a + b])), next).map((first) => (first ? 0 : 1));
}

function transformed(z) {
  for (let g = 1; g < z.length; g *= 2)
    for (let i = 0; i < z.length; i++)
      if (!(i & g)) [z[i], z[i + g]] = [z[i] + z[i + g], z[i] - z[i + g]];
  return z.map((v) => v / Math.sqrt(z.length));
}

export function rotated(u, seed, number) {
  const d = u.length;
  const p = 2 ** Math.floor(Math.log2(d));
  const words = shared(seed, number);
  let word;
  for (let r = 0; r < 4; r++) {
    u = u.map((v, i) => {
      const m = r * d + i;
      if (m % 64 === 0) word = words.next().value;
      return (word >> BigInt(m % 64)) & 1n ? -v : v;
    });
    u = [...transformed(u.slice(0, p)), ...u.slice(p)];
    if (p < d) u = [...u.slice(0, d - p), ...transformed(u.slice(d - p))];
    const h = Math.ceil(d / 2);
    const old = u;
    u = old.map((_, i) => (i % 2 ? old[h + (i - 1) / 2] : old[i / 2]));
  }
  return u;
}

const lifted = (m, y) => (m.inputs === "ball" ? [...y, Math.sqrt(Math.max(1 - sum(y.map((v) => v * v)), 0))] : y);

function nearestFirst(products) {
  return products.map((_, i) => i).sort((i, j) => products[j] - products[i] || i - j);
}

function sphereCode(m, y, seed, number, next) {
  const u = lifted(m, y);
  const n = 2 ** m.bits - 1;
  const z = rotated(u, seed, number).slice(0, n);
  const t = sum(z);
  const a = Math.sqrt(1 + 1 / n);
  const b = (Math.sqrt(n + 1) - 1) / (n * Math.sqrt(n));
  const products = [...z.map((v) => a * v - b * t), (0 - t) / Math.sqrt(n)];
  const order = nearestFirst(products);
  return [order[places(m, next)[0]]];
}

export function direction(seed, number, d, index) {
  const pairs = Math.ceil(d / 2);
  const tries = Math.floor((3 * pairs) / 2) + 64;
  const blocks = Math.ceil((pairs - 1 + tries) / 4);
  const words = shared(seed, number, BigInt(index * blocks));
  const marks = Array.from({ length: pairs - 1 }, () => Number(words.next().value >> 11n)).sort((a, b) => a - b);
  const shares = [...marks, 2 ** 53].map((v, i) => v - (i ? marks[i - 1] : 0));
  const points = [];
  for (let passed = 0; points.length < pairs; ) {
    const w = words.next().value;
    const u = 2 * Number(w >> 38n) + 1 - 2 ** 26;
    const v = 2 * Number((w >> 12n) % 2n ** 26n) + 1 - 2 ** 26;
    const t = u * u + v * v;
    if (t > 2 ** 52 && passed < tries - pairs) passed++;
    else points.push([u, v, t]);
  }
  let n = 2 ** 53;
  if (d % 2) {
    const w = shares[pairs - 1];
    const [u, , t] = points[pairs - 1];
    n = 2 ** 53 - w + w * ((u * u) / t);
  }
  return points
    .flatMap(([u, v, t], j) => {
      const q = Math.sqrt(shares[j] / t / n);
      return [u * q, v * q];
    })
    .slice(0, d);
}

export function polygon(corners, [x, y]) {
  let all = [[1, 0], [0, 1], [-1, 0], [0, -1]];
  while (all.length < corners)
    all = all.flatMap(([a, b], i) => {
      const [c, d] = all[(i + 1) % all.length];
      const e = a + c;
      const f = b + d;
      const l = Math.sqrt(e * e + f * f);
      return [[a, b], [e / l, f / l]];
    });
  if (corners === 2) all = [all[0], all[2]];
  return all.map(([c, s]) => [c * x - s * y, c * y + s * x]);
}

function directionsCodes(m, y, seed, number, next) {
  const u = lifted(m, y);
  const count = 2 ** m.bits;
  return places(m, next).map((place, j) => {
    const all =
      u.length === 2
        ? polygon(count, direction(seed, number, 2, j))
        : Array.from({ length: count }, (_, c) => direction(seed, number, u.length, j * count + c));
    return nearestFirst(all.map((e) => sum(e.map((v, i) => v * u[i]))))[place];
  });
}

function tableCodes(m, numbers, clip, next) {
  const last = m.knots.length - 1;
  if (numbers.some(Number.isNaN)) throw new Error("a number is NaN");
  if (!clip && numbers.some((x) => x < m.knots[0] || x > m.knots[last])) throw new Error("a number is outside the range");
  const words = numbers.map(() => next());
  return numbers.map((x, i) => {
    x = Math.min(Math.max(x, m.knots[0]), m.knots[last]);
    let k = 0;
    while (k < last - 1 && m.knots[k + 1] <= x) k++;
    const lower = Number(words[i] & 0xffffffffn);
    const upper = Number(words[i] >> 32n);
    const end = lower < (x - m.knots[k]) * (2 ** 32 / (m.knots[k + 1] - m.knots[k])) ? 1 : 0;
    const rest = 2 ** (32 - m.column_bits);
    const column = Math.floor(upper / rest);
    const cell = (2 * k + end) * 2 ** m.column_bits + column;
    return upper % rest < m.keep[cell] ? column : m.alias[cell];
  });
}

const KINDS = { "sampled-signs": signsCode, "sampled-coordinates": coordinatesCodes, "sphere-quantizer": sphereCode, "random-directions": directionsCodes };

// -- messages -------------------------------------------------------------------------------------------------------

export function crc32(bytes) {
  let c = 0xffffffff;
  for (const byte of bytes) {
    c ^= byte;
    for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return (c ^ 0xffffffff) >>> 0;
}

// seed: 16 bytes; first: the number of the first vector under an agreed seed, or null where the seed goes with the message.
export function message(m, vectors, { seed, first = null, clip = false, next }) {
  const start = first === null ? 0n : BigInt(first);
  const codes =
    m.kind === "integer-table"
      ? tableCodes(m, vectors, clip, next)
      : vectors.flatMap((x, i) => KINDS[m.kind](m, inputs(m, x, clip), seed, start + BigInt(i), next));
  const head = Buffer.alloc(first === null ? 28 : 20);
  head.write("MV");
  head[2] = 2;
  head[3] = first === null ? 1 : 0;
  head.write(m.fingerprint, 4, "hex");
  head.writeUInt32LE(vectors.length, 8);
  if (first === null) seed.copy(head, 12);
  else head.writeBigUInt64LE(start, 12);
  const packed = Buffer.alloc(Math.ceil((codes.length * m.code_bits) / 8));
  codes.forEach((code, j) => {
    for (let i = 0; i < m.code_bits; i++) {
      const place = m.code_bits * j + i;
      if (Math.floor(code / 2 ** i) % 2) packed[Math.floor(place / 8)] |= 1 << (place % 8);
    }
  });
  const end = Buffer.alloc(4);
  end.writeUInt32LE(crc32([...head, ...packed]));
  return Buffer.concat([head, packed, end]);
}

function taking(words) {
  let used = 0;
  const next = () => {
    if (used === words.length) throw new Error("no word is left");
    return BigInt("0x" + words[used++]);
  };
  return { next, rest: () => words.length - used };
}

if (process.argv[2]) {
  const { mechanisms, cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
  const made = cases.map((c) => {
    const { next, rest } = taking(c.words);
    try {
      const inputs = c.inputs.map((x) => (Array.isArray(x) ? x.map(Number) : Number(x)));
      const found = message(mechanisms[c.mechanism], inputs, { seed: Buffer.from(c.seed, "hex"), first: c.first, clip: c.clip, next });
      return rest() ? `${rest()} words were not taken` : found.toString("hex");
    } catch (error) {
      return `error: ${error.message}`;
    }
  });
  console.log(made.join("\n"));
}
