// Masses and moments of normal and beta laws, also truncated: whether bounds that a file states hold them.
//
// With y = (x − loc)/scale, ∫ y^k dF from the law's start is a function G_k that is known here to 170 digits. Normal laws: Φ, −φ and
// Φ − yφ, where Φ(y) = ½ + φ(y) Σ_n y^(2n + 1)/(1 · 3 ⋯ (2n + 1)). Beta laws: I_y(a, b), a/(a + b) I_y(a + 1, b) and
// a (a + 1)/((a + b)(a + b + 1)) I_y(a + 2, b), where, with W = (2y)^a (2 − 2y)^b, S_y(a, b) = Σ_n (a + b)_n/(a + 1)_n y^n and
// C = S_½(a, b)/a + S_½(b, a)/b,
//
//     I_y(a, b) = W S_y(a, b)/(a C),    I_y(a, b) = 1 − I_(1 − y)(b, a),    I_y(a + 1, b) = I_y(a, b) − W/(a C).
//
// All terms are positive, and numbers are whole multiples of 2^-1216: they are at most 2^566, so that errors stay below 2^-580. Moments
// of t = (x − u)/(v − u) on a stretch [u, v] follow by differences, which lose as many digits as the stretch is small, squared: that is
// counted.

import { Refused } from "./errors.mjs";
import { bitLength, double, floorDivide, Fraction, larger, ONE, rational, smaller, TWO, ZERO } from "./rational.mjs";
import { common, optional } from "./reading.mjs";
import { arctangent, integerRoot } from "./real.mjs";

const BITS = 1216n;
const WIDE_ONE = 1n << BITS;
const SERIES_END = 590n; // bits of a sum, or of 1, after which what is left of it is nothing
const HALVINGS = 24n; // of an argument, before the series of its exponential
const MOMENT_SLACK = new Fraction(1n, 10n ** 155n);
const LAST = 28n; // standard deviations beyond which there is less than 10^-170
const [FLATTEST, STEEPEST] = [1e-3, 500]; // shapes of a beta law; series have thousands of terms beyond
const LEAST_SHARE = new Fraction(1n, 10n ** 50n);
const SERIES_WORK = 3000;
const SHAPES = { norm: 0, truncnorm: 2, beta: 2 };

const WIDE_PI = 16n * arctangent(5n, WIDE_ONE) - 4n * arctangent(239n, WIDE_ONE);
const ROOT_OF_TWO_PI = integerRoot(2n * WIDE_PI * WIDE_ONE);
const WIDE_LN2 = Array.from({ length: Number(BITS) }, (_, k) => WIDE_ONE / (BigInt(k + 1) << BigInt(k + 1))).reduce((a, b) => a + b);

const wide = ({ n, d }) => floorDivide(n << BITS, d);
const multiplied = (x, y) => (x * y) >> BITS;
const divided = (x, y) => floorDivide(x << BITS, y);

function wideExp(x) {
  const power = floorDivide(x, WIDE_LN2);
  const small = (x - power * WIDE_LN2) >> HALVINGS;
  let [sum, term] = [0n, WIDE_ONE];
  for (let n = 1n; term; n++) {
    sum += term;
    term = multiplied(term, small) / n;
  }
  for (let k = 0n; k < HALVINGS; k++) sum = multiplied(sum, sum);
  return power < 0n ? sum >> -power : sum << power;
}

// ln of a positive fraction m · 2^k, that of m by Halley's step, which cubes the error of a double.
function wideLn({ n, d }) {
  const power = BigInt(bitLength(n) - bitLength(d));
  const m = power < 0n ? new Fraction(n << -power, d) : new Fraction(n, d << power);
  const digits = wide(m);
  let found = wide(rational(Math.log(m.toNumber())));
  for (let step = 0; step < 3; step++) {
    const near = wideExp(found);
    found += 2n * divided(digits - near, digits + near);
  }
  return found + power * WIDE_LN2;
}

function normalMoments(place) {
  const y = wide(place);
  const size = y < 0n ? -y : y;
  const above = y > 0n ? WIDE_ONE : 0n;
  if (size >= LAST * WIDE_ONE) return [above, 0n, above];
  const square = multiplied(y, y);
  const density = divided(wideExp(-square / 2n), ROOT_OF_TWO_PI);
  let [term, sum] = [size, 0n];
  for (let n = 3n; term >> (BITS - SERIES_END); n += 2n) {
    sum += term;
    term = multiplied(term, square) / n;
  }
  const half = multiplied(density, sum);
  const mass = WIDE_ONE / 2n + (y < 0n ? -half : half);
  return [mass, -density, mass - multiplied(y, density)];
}

// S_y(a, b) of y ≤ ½.
function betaSeries(a, b, y) {
  const { unit, places } = common([a, b]);
  let [above, below] = [places[0] + places[1], places[0] + unit];
  let [term, sum] = [WIDE_ONE, 0n];
  while (10n * above * y >= 9n * below * WIDE_ONE || term > sum >> SERIES_END) {
    sum += term;
    term = (multiplied(term, y) * above) / below;
    [above, below] = [above + unit, below + unit];
  }
  return sum;
}

function betaMoments(a, b) {
  const middle = WIDE_ONE / 2n;
  const over = (x, { n, d }) => floorDivide(x * d, n);
  const times = (x, { n, d }) => floorDivide(x * n, d);
  const whole = over(betaSeries(a, b, middle), a) + over(betaSeries(b, a, middle), b);
  const second = a.over(a.plus(b)).reduced();
  const third = second.times(a.plus(ONE)).over(a.plus(b).plus(ONE)).reduced();
  const last = a.plus(b).over(a.plus(ONE)).reduced();
  return (place) => {
    if (place.sign <= 0) return [0n, 0n, 0n];
    if (ONE.atMost(place)) return [WIDE_ONE, wide(second), wide(third)];
    const [y, rest] = [place, ONE.minus(place)];
    const weight = wideExp(times(wideLn(TWO.times(y)), a) + times(wideLn(TWO.times(rest)), b));
    const edge = over(divided(weight, whole), a);
    const part = (s, x, shape) => over(divided(multiplied(weight, s), whole), shape);
    const low = TWO.times(y).atMost(ONE);
    const mass = low ? part(betaSeries(a, b, wide(y)), y, a) : WIDE_ONE - part(betaSeries(b, a, wide(rest)), rest, b);
    return [mass, times(mass - edge, second), times(mass - edge - times(multiplied(edge, wide(y)), last), third)];
  };
}

// A law whose moments are known, and the prior made of it: where its density is, and the share of the law that this is.
class Known {
  constructor(moments, loc, scale, low, high) {
    Object.assign(this, { moments, loc, scale, low, high, share: ONE });
  }
  place(x) {
    return smaller(larger(x, this.low), this.high).minus(this.loc).over(this.scale).reduced();
  }
  at(x) {
    return this.moments(this.place(x)).map((m) => new Fraction(m, WIDE_ONE));
  }
  // Whether bounds stated hold a share of the law.
  within([low, high], found, room) {
    const [least, most] = [found.minus(room), found.plus(room)].map((m) => m.over(this.share));
    return low.atMost(larger(least, ZERO)) && most.atMost(high);
  }
  // Whether the bounds stated hold ∫ t^k dF of the stretch, k = 0, 1, 2.
  hold([u, v], stated) {
    const [start, stop] = [larger(u, this.low), smaller(v, this.high)];
    if (!start.below(stop)) return stated.every(([low, high]) => low.sign <= 0 && high.sign >= 0);
    const a = this.place(start);
    const [scale, shift] = [this.scale, start.minus(u)].map((x) => x.over(v.minus(u)).reduced());
    const before = this.at(start);
    const [m0, m1, m2] = this.at(stop).map((m, k) => m.minus(before[k]));
    const first = scale.times(m1.minus(a.times(m0)));
    const square = m2.minus(a.times(TWO.times(m1).minus(a.times(m0))));
    const second = scale.times(scale).times(square);
    const found = [m0, first.plus(shift.times(m0)), second.plus(shift.times(TWO.times(first).plus(shift.times(m0))))];
    const grown = ONE.plus(scale);
    const room = MOMENT_SLACK.times(grown).times(grown).times(ONE.plus(a.times(a)));
    return stated.every((bounds, k) => this.within(bounds, found[k], room));
  }
  // Whether the bounds stated hold what a clipped prior has at either end.
  tails(prior, stated) {
    const [left, right] = [prior.lower, prior.upper].map((x) => this.at(rational(x))[0]);
    let ends = [ZERO, ONE];
    if (prior.law.name === "truncnorm") ends = prior.law.args.slice(0, 2).map((x) => new Fraction(this.moments(rational(x))[0], WIDE_ONE));
    const found = [left.minus(ends[0]), ends[1].minus(right)];
    return stated.every((bounds, k) => this.within(bounds, found[k], MOMENT_SLACK));
  }
}

// The prior's law; null where no moments are known here.
export function knownLaw(prior, account) {
  account.takes(4 * SERIES_WORK);
  const { law } = prior;
  const named = ["", "name", "args", "loc", "scale"];
  if (!Object.hasOwn(SHAPES, law.name) || !Object.keys(law).every((key) => named.includes(key))) return null;
  const count = SHAPES[law.name];
  const shapes = law.args.slice(0, count);
  const rest = law.args.slice(count);
  if (rest.length > 2 || ["loc", "scale"].slice(0, rest.length).some((key) => Object.hasOwn(law, key)))
    throw new Refused("a law of more parameters than it has");
  const [loc = optional(law, "loc", 0n), scale = optional(law, "scale", 1n)] = rest;
  const steep = law.name === "beta" && !shapes.every((shape) => FLATTEST <= shape && shape <= STEEPEST);
  if (steep || !(scale > 0)) return null;
  if (shapes.length < count) throw new Refused("a law of fewer shapes than it has");
  const ends = { norm: [-LAST, LAST], beta: [0n, 1n] }[law.name] ?? shapes;
  if (!(ends[0] < ends[1])) return null;
  const moments = law.name === "beta" ? betaMoments(...shapes.map(rational)) : normalMoments;
  const inside = ends.map((end) => smaller(larger(rational(end), new Fraction(-LAST)), new Fraction(LAST)));
  const [place, width] = [rational(loc), rational(scale)];
  // ends as doubles have them, and as they are
  const [lows, highs] = ends.map((end, k) => [rational(double(end) * double(scale) + double(loc)), place.plus(width.times(inside[k]))]);
  const outer = law.name === "norm";
  let [start, stop] = [outer ? smaller(...lows) : larger(...lows), outer ? larger(...highs) : smaller(...highs)];
  if (prior[""] !== "prior-law") [start, stop] = [larger(start, rational(prior.lower)), smaller(stop, rational(prior.upper))];
  const known = new Known(moments, place, width, start, stop);
  const mass = ([low, high]) => new Fraction(high[0] - low[0], WIDE_ONE);
  if (law.name === "truncnorm") known.share = mass(inside.map(moments));
  if (prior[""] === "prior-truncated") known.share = mass([start, stop].map((x) => moments(known.place(x))));
  return LEAST_SHARE.below(known.share) && start.below(stop) ? known : null;
}

// Whether all bounds stated hold the moments of their stretches.
export function stretchesHold(known, spans, stated, account) {
  account.takes(2 * SERIES_WORK * spans.length);
  return spans.every((span, k) => known.hold(span, stated[k]));
}
