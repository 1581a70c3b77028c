// The prior of an input: its masses and moments on stretches of inputs, and its point masses.
//
// Theorem: where an expected loss is a quadratic a + bt + ct² on the stretch [u, v], t = (x − u)/(v − u), its mean over the stretch
// is a ∫dF + b ∫t dF + c ∫t² dF. So three numbers of the prior for each stretch are all that an expectation takes.
//
// Uniform laws, histograms (clipped to a range or truncated, too) and samples have rational moments, computed here. Of every other
// law the file states enclosures in units of 2⁻¹⁶⁰; what follows from them is proved, that they are the law's is claimed.

import { Refused } from "./errors.mjs";
import { knownLaw, stretchesHold } from "./law_moments.mjs";
import { bitLength, double, Fraction, larger, ONE, rational, smaller, sum, THREE, TWO, ZERO } from "./rational.mjs";
import { countAtMost, optional, pairwise } from "./reading.mjs";

const UNIT = 1n << 160n; // masses and moments are stated in units of 1/UNIT

// A density constant on pieces [start, stop, mass] and point masses [x, mass]; null where they are not rational.
export function rationalPrior(prior) {
  if (prior[""] === "prior-samples") return { pieces: [], points: sampled(prior.samples.map(rational)) };
  const pieces = rationalLaw(prior.law);
  if (pieces === null || prior[""] === "prior-law") return pieces === null ? null : { pieces, points: [] };
  const [low, high] = [rational(prior.lower), rational(prior.upper)];
  const share = ([a, b, mass], from, to) => mass.times(overlap(a, b, from, to)).over(b.minus(a)).reduced();
  const inside = pieces.map((piece) => [larger(piece[0], low), smaller(piece[1], high), share(piece, low, high)]);
  const held = sum(inside.map(([, , mass]) => mass)).reduced();
  if (prior[""] === "prior-truncated")
    return { pieces: inside.map(([a, b, mass]) => [a, b, mass.over(held).reduced()]), points: [] };
  const below = sum(pieces.map((piece) => share(piece, piece[0], low))).reduced();
  return { pieces: inside, points: [[low, below], [high, ONE.minus(below).minus(held).reduced()]] };
}

function sampled(samples) {
  const points = [];
  const share = new Fraction(1n, BigInt(samples.length));
  for (const x of samples.sort((a, b) => a.compare(b))) {
    const last = points[points.length - 1];
    if (last && last[0].equals(x)) last[1] = last[1].plus(share);
    else points.push([x, share]);
  }
  return points;
}

// How much of [a, b] is in [low, high].
const overlap = (a, b, low, high) => larger(smaller(b, high).minus(larger(a, low)), ZERO);

// Uniform laws and histograms, as pieces.
function rationalLaw(law) {
  if (law.name === "uniform") {
    const named = Object.keys(law).filter((key) => !["", "name", "args"].includes(key));
    const open = ["loc", "scale"].slice(law.args.length);
    if (law.args.length > 2 || !named.every((key) => open.includes(key)))
      throw new Refused("a uniform law of other parameters than a place and a scale");
    const loc = law.args.length > 0 ? law.args[0] : optional(law, "loc", 0n);
    const scale = law.args.length > 1 ? law.args[1] : optional(law, "scale", 1n);
    return [[rational(loc), rational(double(loc) + double(scale)), ONE]];
  }
  if (law.name !== "histogram") return null;
  const [contents, places, density] = law.args;
  if (law.args.length !== 3 || places.length !== contents.length + 1) throw new Refused("a histogram of other edges");
  const edges = places.map((x) => rational(law.loc).plus(rational(law.scale).times(rational(x))).reduced());
  const stretches = pairwise(edges);
  const masses = stretches.map(([a, b], k) => rational(contents[k]).times(density ? b.minus(a) : ONE));
  const whole = sum(masses).reduced();
  return stretches.map(([a, b], k) => [a, b, masses[k].over(whole).reduced()]);
}

// ∫ t^k dF over stretches of inputs, k = 0, 1, 2 and t from 0 to 1, and point masses, as pairs of bounds.
export class Moments {
  constructor(prior, stated, account) {
    this.exact = rationalPrior(prior);
    this.stated = stated;
    this.account = account;
    if (this.exact !== null) {
      if (stated !== null) throw new Refused("moments are stated of a prior whose own are rational");
      const { pieces, points } = this.exact;
      account.takes(20 * (pieces.length + points.length));
      this.stops = pieces.map(([, b]) => b);
      this.atoms = points.map(([x, mass]) => [x, [mass, mass]]);
      return;
    }
    if (stated === null) throw new Refused("the masses and moments of this prior are missing");
    this.known = knownLaw(prior, account);
    account.claimed(`the masses and moments stated are those of the prior (${prior.law.name})`);
    this.claim = account.rows[account.rows.length - 1];
    const masses = pairs(stated.masses);
    const ends = prior[""] === "prior-clipped" ? [prior.lower, prior.upper] : [];
    if (masses.length !== ends.length) throw new Refused("point masses that the prior has not, or too few");
    this.atoms = masses.map((mass, k) => [rational(ends[k]), mass]);
    if (this.known !== null) this.found(!masses.length || this.known.tails(prior, masses));
  }

  // Whether the bounds looked at hold what they are bounds of.
  found(holds) {
    Object.assign(this.claim, { how: "proved", agrees: true, holds: this.claim.holds && holds });
  }

  // Bounds of the three moments on each stretch: computed, or those that are stated under this name.
  over(spans, name) {
    if (this.exact !== null) return spans.map(([u, v]) => this.integral(u, v));
    const bounds = pairs(this.stated[name]);
    if (bounds.length !== 3 * spans.length) throw new Refused(`moments stated of other ${name}`);
    const stated = spans.map((_, k) => bounds.slice(3 * k, 3 * k + 3));
    if (this.known !== null) this.found(stretchesHold(this.known, spans, stated, this.account));
    return stated;
  }

  integral(u, v) {
    const { pieces } = this.exact;
    const first = countAtMost(this.stops, u, (stop, x) => stop.atMost(x));
    const last = countAtMost(this.stops, v, (stop, x) => stop.below(x)) + 1;
    this.account.divides(30 * (1 + Math.min(last, pieces.length) - first), bitLength(u.d));
    const parts = [[], [], []];
    for (const [a, b, mass] of pieces.slice(first, Math.max(last, first))) {
      const [from, to] = [larger(a, u), smaller(b, v)];
      if (!mass.sign || !from.below(to)) continue;
      const width = v.minus(u);
      const [s, t] = [from.minus(u).over(width).reduced(), to.minus(u).over(width).reduced()];
      const height = mass.times(width).over(b.minus(a)).reduced();
      parts[0].push(height.times(t.minus(s)));
      parts[1].push(height.times(t.times(t).minus(s.times(s))).over(TWO));
      parts[2].push(height.times(t.times(t).times(t).minus(s.times(s).times(s))).over(THREE));
    }
    return parts.map((terms) => {
      const whole = sum(terms).reduced();
      return [whole, whole];
    });
  }
}

// Lower and upper bounds that follow each other.
function pairs(numbers) {
  if (numbers.length % 2) throw new Refused("a lower bound without an upper one");
  const bounds = [];
  for (let k = 0; k < numbers.length; k += 2) {
    if (numbers[k] > numbers[k + 1]) throw new Refused("a lower bound of a mass or moment above the upper one");
    bounds.push([new Fraction(numbers[k], UNIT), new Fraction(numbers[k + 1], UNIT)]);
  }
  return bounds;
}
