// Quantizers: that the law is one, unbiased, private, and the one that the file shows; cost and bound are checked next.
//
// A quantizer answers an input x of a range [lower, upper] with one of the outputs B_1 < … < B_m, the i-th with probability
// p(x, i). Its rows are affine between knots (quantizer_laws.mjs). So, checked at both ends of every segment: rows sum to 1, no
// probability is negative, and |Σ_i B_i p(x, i) − x| is at most the bias allowed.

import { Refused } from "./errors.mjs";
import { costs, onGrid } from "./quantizer_cost.mjs";
import { segmentsOf, total } from "./quantizer_laws.mjs";
import { quantizerPrivacy } from "./quantizer_privacy.mjs";
import { bitLength, double, exact, Fraction, larger, largest, rational } from "./rational.mjs";
import { common, difference, expBounds, flat, NEAR, optional, pairwise } from "./reading.mjs";
import { shown } from "./words.mjs";

const LAST_DIGITS = 1e-15; // of a number up to 1, as far as two correct roundings are apart

// Check the law of a quantizer, then its cost and lower bound.
export function quantizer(result, account) {
  const { design, mechanism } = result;
  if (mechanism[""] !== "quantizer") throw new Refused("a mechanism that is no quantizer");
  const law = segmentsOf(mechanism.law, account);
  const bins = mechanism.law.bins.map(exact);
  const increase = (list) => pairwise(list).every(([a, b]) => a.below(b));
  account.agrees("outputs and knots increase", increase(bins) && increase(law.knots));
  account.agrees("outputs are as the design asks", outputsFit(design, bins));
  account.agrees("inputs are the design's", inputsFit(design, law, mechanism));
  const whole = law.rows.every((row) => row.length === bins.length && total(row) === law.common);
  account.agrees("rows sum to 1", whole);
  account.agrees("no probability is negative", law.rows.every((row) => row.every((p) => p >= 0n)));
  const allowed = optional(design, "max_bias", 0);
  const bias = largestBias(law, bins);
  account.proved(`bias at most ${shown(allowed)}`, bias.atMost(rational(allowed)), difference(bias, rational(allowed)));
  quantizerPrivacy(design, law, account);
  account.agrees("the table shown is the law", tableFits(law, bins, mechanism) && selectionFits(mechanism));
  costs(result, account, { ...law, bins }, expBounds(rational(design.privacy.epsilon))[1]);
}

// Whether the outputs are those of the design, or as many and no larger than those that it searches.
function outputsFit(design, bins) {
  const wanted = optional(design, "bins", null);
  const fits = !("m" in design) || design.m === BigInt(bins.length);
  if (Array.isArray(wanted)) {
    // at the edge of what is feasible doubles are a few units off
    const near = (a, b) => rational(a).minus(b).absolute().times(new Fraction(1n << 48n)).atMost(b.absolute());
    return fits && wanted.length === bins.length && wanted.every((a, k) => near(a, bins[k]));
  }
  if (wanted === null || !("max_abs" in wanted)) return fits;
  // the outputs were searched, or are a grid
  const farthest = largest(bins.map((b) => b.absolute()));
  const most = rational(double(wanted.max_abs) * (1 + NEAR / 1000));
  const within = fits && BigInt(bins.length) === optional(wanted, "m", BigInt(bins.length)) && farthest.atMost(most);
  return within && (!("step" in wanted) || onGrid(wanted, bins));
}

// Whether the law is on the inputs that are asked for: of a grid all of them, else both ends of the range.
function inputsFit(design, { knots }, mechanism) {
  const same = (v, w) => v.length === w.length && v.every((x, k) => x.equals(rational(w[k])));
  const range = optional(design, "input_range", null);
  const ends = range !== null && range.length ? range : [mechanism.knots[0], mechanism.knots[mechanism.knots.length - 1]];
  const grid = optional(design, "inputs", null);
  return same([knots[0], knots[knots.length - 1]], ends) && (grid === null || same(knots, grid));
}

// max |Σ B p(x) − x| at the ends of all segments.
function largestBias({ knots, rows, common: denominator }, bins) {
  const { unit, places } = common(bins);
  const means = new Map();
  for (const row of new Set(rows)) {
    const moment = total(row.slice(0, places.length).map((p, k) => p * places[k]));
    means.set(row, new Fraction(moment, denominator * unit));
  }
  const inputs = pairwise(knots).flat();
  return inputs.map((x, k) => means.get(rows[k]).minus(x).absolute()).reduce(larger);
}

// Whether what is shown in doubles is the law: outputs exactly, knots and probabilities to their last digits.
function tableFits({ knots, rows, common: denominator }, bins, mechanism) {
  const farthest = largest(bins.map((b) => b.absolute()));
  const excess = BigInt(Math.max(bitLength(denominator) - 60, 0)); // 60 bits are more than enough here
  const whole = Number(denominator >> excess);
  const probabilities = (row) => row.map((p) => Number(p >> excess) / whole);
  const found = [
    ...rows.filter((_, k) => k % 2 === 0).flatMap(probabilities),
    ...rows.filter((_, k) => k % 2 === 1).flatMap(probabilities),
    ...knots.map((x) => x.over(farthest).toNumber()),
  ];
  const scale = farthest.toNumber();
  const stated = [...flat([mechanism.starts, mechanism.ends]), ...mechanism.knots.map((k) => double(k) / scale)];
  const near = found.slice(0, stated.length).every((p, k) => Math.abs(p - double(stated[k])) <= LAST_DIGITS);
  if (near && stated.length !== found.length) throw new Refused("a table of another size than the law's");
  return near && sameNumbers(bins.map((b) => b.toNumber()), mechanism.bins);
}

const sameNumbers = (v, w) => v.length === w.length && v.every((x, k) => double(x) === double(w[k]));

// Whether the probabilities of a selection are the weights of the law, rounded; other laws show none.
function selectionFits(mechanism) {
  const { selection: shownSelection, law } = mechanism;
  if (shownSelection === null) return true;
  if (law[""] !== "selection-law" || !sameNumbers(shownSelection.bins, mechanism.bins)) return false;
  return ["left", "right"].every((side) => {
    const [rows, sides] = [shownSelection[side], law[side]];
    if (rows.length !== sides.length) throw new Refused("a selection of another size than the law's");
    return rows.every((row, k) => {
      const whole = new Fraction(total(sides[k]));
      if (row.length < sides[k].length) throw new Refused("a selection of another size than the law's");
      const exactly = (i) => (i < sides[k].length ? new Fraction(sides[k][i]).over(whole).toNumber() : 0);
      return row.every((p, i) => Math.abs(double(p) - exactly(i)) <= LAST_DIGITS);
    });
  });
}
