// Exact fractions of BigInt. A double is the dyadic rational that it is.
//
// Sums of many terms keep a common denominator or are added in pairs; a fraction is brought to lowest terms only where
// `reduced` says so, for the greatest common divisor is what costs most here.

import { Refused } from "./errors.mjs";

// Lehmer's algorithm: as many of Euclid's steps at a time as the leading 52 bits decide, in doubles.
export function gcd(a, b) {
  if (a < 0n) a = -a;
  if (b < 0n) b = -b;
  if (a && b && !(b & (b - 1n))) return (a & -a) < b ? a & -a : b; // of a power of 2
  if (a < b) [a, b] = [b, a];
  while (b >> 64n) {
    const shift = BigInt(bitLength(a) - 52);
    let [x, y] = [Number(a >> shift), Number(b >> shift)];
    let [A, B, C, D] = [1, 0, 0, 1]; // a' = Aa + Bb, b' = Ca + Db
    while (y + C > 0 && y + D > 0) {
      const quotient = Math.floor((x + A) / (y + C));
      if (quotient !== Math.floor((x + B) / (y + D)) || Math.abs(C) + Math.abs(D) > 2 ** 26 || quotient > 2 ** 26) break;
      [A, B, C, D] = [C, D, A - quotient * C, B - quotient * D];
      [x, y] = [y, x - quotient * y];
    }
    if (B === 0) {
      [a, b] = [b, a % b];
    } else {
      const [P, Q, R, S] = [A, B, C, D].map(BigInt);
      [a, b] = [P * a + Q * b, R * a + S * b];
    }
  }
  while (b) [a, b] = [b, a % b];
  return a;
}

export const lcm = (values) => values.reduce((a, b) => (a % b === 0n ? a : b % a === 0n ? b : (a / gcd(a, b)) * b), 1n);

export function floorDivide(a, b) {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

export const ceilDivide = (a, b) => -floorDivide(-a, b);
export const maximum = (a, b) => (a < b ? b : a);
export const minimum = (a, b) => (b < a ? b : a);
export const magnitude = (a) => (a < 0n ? -a : a);
export const bitLength = (a) => (a === 0n ? 0 : BigInt.asUintN(64, a) === a ? a.toString(2).length : longBitLength(a));

function longBitLength(a) {
  const digits = a.toString(16);
  return 4 * digits.length - Math.clz32(parseInt(digits[0], 16)) + 28;
}

export class Fraction {
  constructor(numerator, denominator = 1n) {
    if (denominator === 0n) throw new Refused("a denominator of 0");
    this.n = denominator < 0n ? -numerator : numerator;
    this.d = denominator < 0n ? -denominator : denominator;
  }
  plus(other) {
    if (this.d === other.d) return new Fraction(this.n + other.n, this.d);
    return new Fraction(this.n * other.d + other.n * this.d, this.d * other.d);
  }
  minus(other) {
    if (this.d === other.d) return new Fraction(this.n - other.n, this.d);
    return new Fraction(this.n * other.d - other.n * this.d, this.d * other.d);
  }
  times(other) {
    return new Fraction(this.n * other.n, this.d * other.d);
  }
  over(other) {
    if (this.d === other.d) return new Fraction(this.n, other.n);
    return new Fraction(this.n * other.d, this.d * other.n);
  }
  negative() {
    return new Fraction(-this.n, this.d);
  }
  absolute() {
    return new Fraction(magnitude(this.n), this.d);
  }
  reduced() {
    const common = gcd(this.n, this.d);
    return common === 1n ? this : new Fraction(this.n / common, this.d / common);
  }
  // Negative, 0 or positive, as this is below, equal to or above the other.
  compare(other) {
    const left = this.d === other.d ? this.n : this.n * other.d;
    const right = this.d === other.d ? other.n : other.n * this.d;
    return left < right ? -1 : left > right ? 1 : 0;
  }
  below(other) {
    return this.compare(other) < 0;
  }
  atMost(other) {
    return this.compare(other) <= 0;
  }
  equals(other) {
    return this.compare(other) === 0;
  }
  get sign() {
    return this.n < 0n ? -1 : this.n > 0n ? 1 : 0;
  }
  floor() {
    return floorDivide(this.n, this.d);
  }
  ceil() {
    return ceilDivide(this.n, this.d);
  }
  // The nearest double.
  toNumber() {
    return ratio(this.n, this.d);
  }
}

export const ZERO = new Fraction(0n);
export const ONE = new Fraction(1n);
export const TWO = new Fraction(2n);
export const THREE = new Fraction(3n);

// The double nearest to n/d, d > 0: 64 bits and more of the quotient, the last one set if anything is left.
export function ratio(n, d) {
  if (n === 0n) return 0;
  const shift = Math.max(bitLength(d) - bitLength(magnitude(n)) + 66, 0);
  const top = magnitude(n) << BigInt(shift);
  const quotient = top / d;
  let near = Number(top % d === 0n ? quotient : quotient | 1n);
  for (let left = shift; left > 0; left -= 1000) near *= 2 ** -Math.min(left, 1000);
  near = near || Number.MIN_VALUE; // what is not 0 keeps its sign
  return n < 0n ? -near : near;
}

const view = new DataView(new ArrayBuffer(8));

// A number of the file or one of ours as a double.
export const double = (x) => (Number.isFinite(x) ? x : rational(x).toNumber());

// A number of the file, or one of ours, as a fraction; a double is one in lowest terms.
export function rational(x) {
  if (x instanceof Fraction) return x;
  if (typeof x === "bigint") return new Fraction(x);
  if (typeof x !== "number" || !Number.isFinite(x)) throw new Refused("something else where a finite number stands");
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 0x7ffn);
  let significand = (bits & 0xfffffffffffffn) | (exponent ? 1n << 52n : 0n);
  if (bits >> 63n) significand = -significand;
  const power = Math.max(exponent, 1) - 1075;
  if (power >= 0) return new Fraction(significand << BigInt(power));
  return halved(significand, -power);
}

function halved(n, power) {
  while (power > 0 && !(n & 1n)) {
    if (n === 0n) return ZERO;
    const step = power >= 16 && !(n & 0xffffn) ? 16 : 1;
    n >>= BigInt(step);
    power -= step;
  }
  return new Fraction(n, 1n << BigInt(power));
}

// A whole number or a fraction of the file, no double.
export function exact(x) {
  if (typeof x !== "bigint" && !(x instanceof Fraction)) throw new Refused("something else where a fraction stands");
  return rational(x);
}

// The sum of many fractions: equal denominators first, then in pairs.
export function sum(terms) {
  const shared = new Map();
  for (const term of terms) shared.set(term.d, (shared.get(term.d) ?? 0n) + term.n);
  let parts = [...shared].map(([d, n]) => new Fraction(n, d));
  while (parts.length > 1) {
    const next = [];
    for (let k = 0; k < parts.length; k += 2) next.push(k + 1 < parts.length ? parts[k].plus(parts[k + 1]) : parts[k]);
    parts = next;
  }
  return parts[0] ?? ZERO;
}

export const larger = (a, b) => (a.below(b) ? b : a);
export const smaller = (a, b) => (b.below(a) ? b : a);
export const largest = (fractions) => fractions.reduce(larger);
export const smallest = (fractions) => fractions.reduce(smaller);
