// What every check needs: the values of a file, its seal, the claims it makes, and bounds of the exponential function.

import { NotCovered, Refused, TooLarge } from "./errors.mjs";
import { canonical, parse } from "./json.mjs";
import { MEMBERS } from "./members.mjs";
import { bitLength, double, Fraction, lcm, ZERO } from "./rational.mjs";
import { sha256 } from "./sha256.mjs";

export const NEAR = 1e-9;
const OPERATIONS = 2_000_000; // of those that are counted, what a slow processor does in a second
const PARTS = { $kind: ["fields"], $array: ["dtype", "shape"], $law: ["args", "kwds"] };
const DTYPE = /^(u?int(8|16|32|64)|float(32|64)|bool|object|str|<U[0-9]{1,4})$/;
const TAGS = ["$kind", "$array", "$law", "$table", "$tuple", "$items", "$fraction", "$float", "$callable"];

// Claims, each with how it was checked, whether it holds, and what is left before it would fail.
//
// Work is counted before it is done, in additions or comparisons of numbers of 1,000 bits: a file that asks for more than its
// size allows is refused at once.
export class Account {
  constructor(characters = 0) {
    this.rows = [];
    this.costClaimed = false;
    this.left = OPERATIONS * (5 + characters / 1e6);
  }
  // Count operations on numbers of so many bits.
  takes(operations, bits = 0) {
    this.left -= operations * (1 + bits / 1000);
    if (this.left < 0) throw new TooLarge("too large to check: more work than 5 s and a second for each megabyte");
  }
  // Leave seven tenths of the work for later: what is too large is refused before most of it is done.
  atFirst(work) {
    const later = 0.7 * this.left;
    this.left -= later;
    try {
      return work();
    } finally {
      this.left += later;
    }
  }
  add(claim, how, holds, margin = null, agrees = false) {
    const left = holds && margin < 0 ? 0 : margin; // what doubles may have lost is nothing
    this.rows.push({ claim, how, holds: Boolean(holds), margin: left, agrees });
  }
  // Count operations on fractions, whose common divisors take the square of their bits.
  divides(operations, bits) {
    this.takes(operations * (4 + 6 * (bits / 1000) ** 2));
  }
  // Not a claim about the mechanism: that it is a law, and that the file does not contradict itself.
  agrees(claim, holds) {
    this.add(claim, "proved", holds, null, true);
  }
  proved(claim, holds, margin = null) {
    this.add(claim, "proved", holds, margin);
  }
  claimed(claim, holds = true) {
    this.add(claim, "claimed", holds);
  }
  // A value or a lower bound that is not checked here: a status that follows from it is claimed too.
  claimedCost(claim, holds = true) {
    this.costClaimed = true;
    this.claimed(claim, holds);
  }
  // Whether low ≤ high, exactly; within the room that floats may have lost, it is only recomputed.
  bounds(claim, low, high, room = ZERO) {
    const highest = high.plus(room);
    const exactly = low.atMost(high);
    const how = !exactly && low.atMost(highest) ? "recomputed" : "proved";
    this.add(claim, how, low.atMost(highest), difference(low, high));
  }
}

// About high − low.
export const difference = (low, high) => {
  const { n, d } = high.minus(low);
  const excess = BigInt(Math.max(bitLength(d) - 200, 0));
  return excess && n ? new Fraction(n >> excess, d >> excess).toNumber() : new Fraction(n, d).toNumber();
};

// The payload of a file as values, once its seal is found to be that of its payload.
export function read(text) {
  if (text.length > 2 ** 26) throw new TooLarge("too large to check: more than 2^26 characters");
  const document = parse(text);
  if (!sameMembers(document, ["format", "version", "sha256", "payload"]))
    throw new Refused("an envelope with other parts than format, version, sha256 and payload");
  if (document.format !== "mechdesign-result" || document.version !== 2n)
    throw new Refused("not a mechdesign-result file of version 2");
  if (sha256(canonical(document.payload)) !== document.sha256) throw new Refused("the checksum does not match");
  return plain(document.payload);
}

// The same file with the seal of its payload: whoever edits a file can do this.
export function sealed(text) {
  const { payload } = parse(text);
  return `{"format": "mechdesign-result", "version": 2, "sha256": "${sha256(canonical(payload))}", "payload": ${canonical(payload)}}`;
}

function sameMembers(object, names) {
  if (!isObject(object)) return false;
  const keys = Object.keys(object);
  return keys.length === names.length && names.every((name) => name in object);
}

// An object of a file: to ask for a member that it does not have is an error.
const strict = (object) =>
  new Proxy(object, {
    get(target, name) {
      if (typeof name === "string" && !(name in target)) throw new Refused(`malformed: no ${name || "kind"}`);
      return target[name];
    },
  });

export const optional = (object, name, otherwise) => (name in object ? object[name] : otherwise);

// (ε, δ) of all that is asked at once, where that is finite.
export function pointsOf(privacy) {
  if (privacy[""] === "membership-advantage") return [[0, privacy.eta]];
  const points = "points" in privacy ? privacy.points : [[privacy.epsilon, optional(privacy, "delta", 0)]];
  const sound = ([e, d]) => double(e) >= 0 && double(e) < Infinity && double(d) >= 0 && double(d) <= 1;
  if (!points.length || !points.every(sound)) throw new Refused("a point (epsilon, delta) that is none");
  return points;
}

// Objects hold their kind under "".
function plain(node) {
  if (Array.isArray(node)) return node.map((child) => (typeof child === "object" ? plain(child) : child));
  if (node === null || typeof node !== "object") return node;
  const tag = TAGS.find((key) => key in node);
  if (!tag || !sameMembers(node, [tag, ...(PARTS[tag] ?? [])])) throw new Refused("an object that means nothing");
  const value = node[tag];
  if (tag === "$kind") return kind(value, node.fields);
  if (tag === "$array") return shaped(plain(value), node.dtype, node.shape);
  if (tag === "$law") return law(value, node.args, node.kwds);
  if (tag === "$items") return items(value);
  if (tag === "$fraction") return fraction(value);
  if (tag === "$float") return float(value);
  return tag === "$callable" ? value : plain(value);
}

function kind(name, fields) {
  if (name !== null && typeof name === "object") throw new Refused("a kind that is no name");
  if (typeof name !== "string" || !Object.hasOwn(MEMBERS, name))
    throw new NotCovered(`a kind that mechdesign does not have, or a newer one: ${String(name).slice(0, 80)}`);
  const members = MEMBERS[name];
  if (!sameMembers(fields, Object.keys(members))) throw new Refused(`${name} with other members than its own`);
  for (const [member, words] of Object.entries(members))
    if (!words.split("|").some((word) => isWhat(word, fields[member])))
      throw new Refused(`${name}: its ${member} is none of ${words}`);
  const found = Object.create(null);
  found[""] = name;
  for (const [key, child] of Object.entries(fields)) found[key] = plain(child);
  return strict(found);
}

export const isObject = (node) => node !== null && typeof node === "object" && !Array.isArray(node);
const isDouble = (node) => typeof node === "number" || typeof node === "bigint";
const TAGGED = { frac: "$fraction", arr: "$array", table: "$table", law: "$law", fun: "$callable", items: "$items" };
const LISTED = { nums: "num", ints: "int", fracs: "frac", texts: "text", rows: "fracs", irows: "ints", vectors: "nums", pairs: "pair" };
const VALUES = {
  any: () => true,
  null: (node) => node === null,
  flag: (node) => typeof node === "boolean",
  text: (node) => typeof node === "string",
  int: (node) => typeof node === "bigint",
  count: (node) => typeof node === "bigint" && node >= 0n,
  num: (node) => isDouble(node) || (isObject(node) && "$float" in node),
  nn: (node) => isDouble(node) && node >= 0,
  pos: (node) => isDouble(node) && node > 0,
};

// Whether a member is what a word of MEMBERS says: an object of a kind, this text, or a value of a type.
function isWhat(word, node) {
  if (word[0] === "@") return isObject(node) && node.$kind === word.slice(1);
  if (word[0] === "'") return node === word.slice(1, -1);
  if (word in TAGGED) return isObject(node) && TAGGED[word] in node;
  if (word in LISTED) {
    const held = isObject(node) ? node.$tuple : null;
    return Array.isArray(held) && held.every((each) => isWhat(LISTED[word], each));
  }
  if (word === "pair") return isWhat("nums", node) && node.$tuple.length === 2;
  return VALUES[word](node);
}

function law(name, args, kwds) {
  const held = plain(kwds);
  if (held.some(([key]) => key !== null && typeof key === "object")) throw new Refused("a parameter without a name");
  const parameters = plain(args);
  const numbers = (values) => values.every((value) => typeof value === "number" || typeof value === "bigint");
  if (!numbers(held.map(([, value]) => value)) || !numbers(parameters.slice(0, 2).filter((value) => !Array.isArray(value))))
    throw new Refused("a law with a parameter that is no number");
  const found = Object.assign(Object.create(null), Object.fromEntries(held));
  found[""] = "law";
  found.name = name;
  found.args = parameters;
  return strict(found);
}

function items(pairs) {
  const keys = pairs.map((pair) => {
    if (!Array.isArray(pair) || pair.length !== 2) throw new Refused("a dictionary of something else than pairs");
    return canonical(pair[0]);
  });
  if (new Set(keys).size < keys.length) throw new Refused("a key that stands twice");
  return plain(pairs);
}

function fraction(text) {
  const parts = typeof text === "string" && /^(-?[0-9]{1,4300})\/([0-9]{1,4300})$/.exec(text);
  if (!parts) throw new Refused("a fraction that is none");
  return new Fraction(BigInt(parts[1]), BigInt(parts[2])).reduced();
}

function float(text) {
  const known = { inf: Infinity, "-inf": -Infinity, nan: NaN };
  if (typeof text !== "string" || !Object.hasOwn(known, text)) throw new Refused("a number that is none");
  return known[text];
}

// The values of an array, refused unless they are of its shape and of its type of numbers.
function shaped(values, dtype, shape) {
  const sized = Array.isArray(shape) && shape.length > 0 && shape.every((n) => typeof n === "bigint" && n >= 0n);
  if (typeof dtype !== "string" || !DTYPE.test(dtype) || !sized) throw new Refused("an array without a type or a shape");
  let layer = [values];
  for (const length of shape) {
    if (!layer.every((part) => Array.isArray(part) && BigInt(part.length) === length))
      throw new Refused("an array that is not of its shape");
    layer = layer.flat();
  }
  const types = { f: ["bigint", "number"], i: ["bigint"], u: ["bigint"], b: ["boolean"] }[dtype[0]];
  if (types && !layer.every((value) => types.includes(typeof value)))
    throw new Refused(`an array of type ${dtype} that holds something else`);
  return values;
}

// Rationals below and above e^x: a Taylor interval of x / 2^k, squared k times with outward rounding.
export function expBounds(x, bits = 320) {
  if (x.d << 14n < (x.n < 0n ? -x.n : x.n)) throw new NotCovered("an exponent beyond 16384");
  if (x.n < 0n) {
    const [low, high] = expBounds(x.negative(), bits);
    return [new Fraction(high.d, high.n), new Fraction(low.d, low.n)];
  }
  let k = Math.max(0, Math.ceil(Math.log2(x.toNumber() + 1)) + 2);
  const unit = BigInt(bits + 2 * k);
  const [above, below] = [x.n, x.d << BigInt(k)];
  let term = 1n << (unit + 20n);
  let total = 0n;
  for (let n = 1n; n < 60n; n++) {
    total += term;
    term = (term * above) / (below * n);
  }
  let low = total >> 20n;
  let high = ((total + 2n * term) >> 20n) + 64n;
  for (; k > 0; k--) {
    low = (low * low) >> unit;
    high = ((high * high) >> unit) + 1n;
  }
  return [new Fraction(low, 1n << unit), new Fraction(high, 1n << unit)];
}

// Whether two values of a file are equal, as Python has it: 1 is 1.0.
export function equal(a, b) {
  const [left, right] = [a, b].map((value) => value !== null && typeof value === "object");
  if (!left || !right) return typeof a === "string" || typeof b === "string" ? a === b : left === right && a == b;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && equal(a[key], b[key]));
}

// The numbers of lists within lists.
export const flat = (nested) => (Array.isArray(nested) ? nested.flat(Infinity) : [nested]);

// Pairs of neighbours in a list.
export const pairwise = (list) => list.slice(1).map((item, k) => [list[k], item]);

// Running sums of BigInts, from 0.
export function accumulated(list) {
  const sums = [0n];
  for (const x of list) sums.push(sums[sums.length - 1] + x);
  return sums;
}

// How many of these, in order, are at most x: where x would be inserted, behind its equals.
export function countAtMost(sorted, x, atMost = (a, b) => a <= b) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (atMost(sorted[middle], x)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Fractions over one denominator; `step` is called with each one on the way.
export function common(fractions, step = () => {}) {
  const reduced = fractions.map((x) => x.reduced());
  let unit = 1n;
  for (const d of new Set(reduced.map((x) => x.d))) step((unit = lcm([unit, d])));
  return { unit, places: reduced.map((x) => x.n * (unit / x.d)) };
}
