// Numbers m · 2^e of 192 bits, for what is no fraction: roots, exponentials and logarithms.
//
// Every operation is rounded to a relative error of 2^-190, as the 55 digits of the verifier in Python are to 1e-54; sums of
// values of at most 1 stay far within the slack of 1e-40 that the checks add wherever a bound is claimed.

import { Refused } from "./errors.mjs";
import { bitLength, floorDivide, Fraction, magnitude, rational } from "./rational.mjs";

const PRECISION = 192;
const APART = 1000; // exponents that are so far apart leave nothing of the smaller number
const LARGEST_EXPONENT = 2_302_585; // e to this is 10^1,000,000, where Python's decimals end

// The length of a whole number in bits, or one more.
function size(m) {
  if (m === 0n) return 0;
  const near = Math.abs(Number(m));
  return near < Infinity ? Math.floor(Math.log2(near)) + 1 : bitLength(magnitude(m));
}

function rounded(m, e) {
  if (m === 0n) return zero;
  const excess = size(m) - PRECISION;
  return excess > 0 ? new Real(m >> BigInt(excess), e + excess) : new Real(m, e);
}

export class Real {
  constructor(m, e = 0) {
    this.m = m;
    this.e = e;
  }
  plus(other) {
    const apart = this.e - other.e;
    if (apart > APART || apart < -APART) return (apart > 0) === (this.m !== 0n) || other.m === 0n ? this : other;
    if (apart >= 0) return rounded((this.m << BigInt(apart)) + other.m, other.e);
    return rounded(this.m + (other.m << BigInt(-apart)), this.e);
  }
  minus(other) {
    return this.plus(other.negative());
  }
  times(other) {
    return rounded(this.m * other.m, this.e + other.e);
  }
  over(other) {
    const more = Math.max(PRECISION + 2 + size(other.m) - size(this.m), 0);
    return rounded((this.m << BigInt(more)) / other.m, this.e - other.e - more);
  }
  // Times 2^k, exactly.
  doubled(k = 1) {
    return new Real(this.m, this.e + k);
  }
  negative() {
    return new Real(-this.m, this.e);
  }
  absolute() {
    return this.m < 0n ? this.negative() : this;
  }
  get sign() {
    return this.m > 0n ? 1 : this.m < 0n ? -1 : 0;
  }
  below(other) {
    return this.minus(other).m < 0n;
  }
  atMost(other) {
    return this.minus(other).m <= 0n;
  }
  floor() {
    return this.e < 0 ? this.m >> BigInt(-this.e) : this.m << BigInt(this.e);
  }
  ceil() {
    return -this.negative().floor();
  }
  // The exponent k of the greatest power of 2 that is at most |x|, or k + 1.
  get magnitude() {
    return size(this.m) - 1 + this.e;
  }
  // The nearest double.
  toNumber() {
    const half = Math.trunc(this.e / 2);
    return Number(this.m) * 2 ** half * 2 ** (this.e - half);
  }
  toFraction() {
    if (this.e < 0) return new Fraction(this.m, 1n << BigInt(-this.e));
    return new Fraction(this.m << BigInt(this.e));
  }
}

export const zero = new Real(0n);
export const one = new Real(1n);
export const two = new Real(2n);
export const half = new Real(1n, -1);

// A number of the file, or one of ours.
export function real(x) {
  if (x instanceof Real) return x;
  if (Number.isSafeInteger(x)) return new Real(BigInt(x));
  const { n, d } = rational(x);
  return quotient(n, d);
}

export const quotient = (n, d) => rounded(n, 0).over(rounded(d, 0));
export const totalOf = (list) => list.reduce((sum, x) => sum.plus(x), zero);
export const least = (a, b) => (b.below(a) ? b : a);
export const most = (a, b) => (a.below(b) ? b : a);
export const tenTo = (power) => (power < 0 ? quotient(1n, 10n ** BigInt(-power)) : rounded(10n ** BigInt(power), 0));

// Slack above the rounding of sums of values of at most 1.
export const SLACK = tenTo(-40);
// Above the rounding of a few operations.
export const ROUND = one.plus(tenTo(-45));

// The largest whole number whose square is at most this.
export function integerRoot(n) {
  if (n < 2n) return n;
  let root = 1n << BigInt((bitLength(n) + 1) >> 1);
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

export function squareRoot(x) {
  if (x.m < 0n) throw new Refused("the root of a negative number");
  const more = 2 * PRECISION + (x.e % 2 ? 1 : 0);
  return rounded(integerRoot(x.m << BigInt(more)), (x.e - more) / 2);
}

// Fixed point, for the series of the exponential function and the constants.
const PLACES = 240;
const FIXED_ONE = 1n << BigInt(PLACES);

export function arctangent(inverse, unit) {
  let [term, sum] = [unit / inverse, 0n];
  for (let k = 1n; term; k += 2n) {
    sum += k % 4n === 1n ? term / k : -(term / k);
    term /= inverse * inverse;
  }
  return sum;
}

export const PI = rounded(16n * arctangent(5n, FIXED_ONE) - 4n * arctangent(239n, FIXED_ONE), -PLACES);

// ln 2 = Σ 1/(k 2^k).
const LN2 = Array.from({ length: PLACES }, (_, k) => FIXED_ONE / (BigInt(k + 1) << BigInt(k + 1))).reduce((a, b) => a + b);

// e^x of 0 ≤ x < 1, by its series.
function expSeries(x) {
  let [sum, term] = [FIXED_ONE, x];
  for (let n = 2n; term; n++) {
    sum += term;
    term = ((term * x) >> BigInt(PLACES)) / n;
  }
  return sum;
}

// e^(k/256) and e^(k/65536), k < 256.
const [COARSE, FINE] = [8n, 16n].map((bits) => {
  const step = expSeries(FIXED_ONE >> bits);
  const found = [FIXED_ONE];
  while (found.length < 256) found.push((found[found.length - 1] * step) >> BigInt(PLACES));
  return found;
});

// e^x = 2^k e^(i/256) e^(j/65536) e^r with a short series of the rest r < 2^-16.
export function exp(x) {
  if (x.magnitude > 22 || Math.abs(x.toNumber()) > LARGEST_EXPONENT) {
    if (x.m < 0n) return zero;
    throw new Refused("malformed: an exponential beyond 10^1000000");
  }
  const place = new Real(x.m, x.e + PLACES).floor();
  const power = floorDivide(place, LN2);
  const rest = place - power * LN2;
  const coarse = COARSE[Number(rest >> BigInt(PLACES - 8))];
  const fine = FINE[Number((rest >> BigInt(PLACES - 16)) & 255n)];
  const short = expSeries(rest & ((1n << BigInt(PLACES - 16)) - 1n));
  return rounded(coarse * fine * short, Number(power) - 3 * PLACES);
}

// ln x by Halley's step y + 2 (x − e^y)/(x + e^y), which cubes the error of a double.
export function ln(x) {
  if (x.m <= 0n) throw new Refused("malformed: the logarithm of what is not positive");
  const shift = size(x.m);
  let found = real(Math.log(Number(x.m) * 2 ** -shift) + (x.e + shift) * Math.LN2);
  for (let step = 0; step < 2; step++) {
    const power = exp(found);
    found = found.plus(x.minus(power).over(x.plus(power)).doubled());
  }
  return found;
}
