// Optimal noise for one number: lower bounds that hold for any additive noise, by weak duality.

import { Refused } from "./errors.mjs";
import { double, Fraction, larger, ONE, rational, smallest, sum, THREE, TWO, ZERO } from "./rational.mjs";

const wholeNumber = (x) => new Fraction(BigInt(x));

// Of one point ε > 0, weak duality with G(t) = (ℓ(t) − λ + G(t + 1))/e^ε, 0 from `periods` on (0 of them: for ever), at the shift 1.
// What is missing on [0, 1) below the root γ of G is sent to what G leaves above it.
export function staircaseBound(stated, loss, points, sensitivity) {
  const [growth, delta] = points[0];
  if (points.length > 1 || growth.minus(ONE).below(new Fraction(1n, 1n << 100n)))
    throw new Refused("a bound of one epsilon, where more are asked or none is above 0");
  const periods = Number(stated.periods);
  const squared = loss === "squared";
  const b = squared ? ONE : ZERO; // the loss is |t| or t² in this unit
  const a = squared ? ZERO : ONE;
  const unit = squared ? sensitivity.times(sensitivity).reduced() : sensitivity;
  const level = stated.level.over(unit).reduced();
  const bits = BigInt(400 + 4 * Math.floor(Math.log2(growth.toNumber())));
  const far = wholeNumber(squared ? periods ** 2 : periods);
  if (periods > 50_000 || level.sign <= 0 || (!periods && delta.sign) || (periods && far.below(level)))
    throw new Refused("a level without periods, or with too many");
  const one = 1n << bits;
  const r = new Fraction((one * growth.d) / growth.n, one);
  let [highest, lowest] = [ZERO, ZERO];
  let c = [ZERO, ZERO, ZERO];
  if (!periods) {
    const z = r.over(ONE.minus(r));
    const twice = TWO.times(b).times(z);
    c = [a.plus(twice).times(z).plus(b.times(z)).minus(level).times(z), a.plus(twice).times(z), b.times(z)].map((x) => x.reduced());
  }
  for (let j = periods - 1; j >= 0; j--) {
    // coefficients of G(j + u), rounded down
    const now = [wholeNumber(squared ? j * j : j).minus(level).plus(c[0]), a.plus(wholeNumber(2 * j).times(b)).plus(c[1]), b.plus(c[2])];
    c = now.map((v) => new Fraction(r.times(v).times(new Fraction(one)).floor(), one));
    if (j) [highest, lowest] = [larger(highest, sum(c)), c[0].below(lowest) ? c[0] : lowest];
  }
  const at = (x) => c[0].plus(c[1].times(x)).plus(c[2].times(x).times(x));
  let [low, high] = [ZERO, ONE];
  const fine = new Fraction(1n, 1n << 200n);
  while (c[0].sign < 0 && low.times(fine).below(high.minus(low))) {
    const middle = low.plus(high).over(TWO).reduced();
    if (at(middle).sign < 0) low = middle;
    else high = middle;
  }
  const upTo = (x) => c[0].times(x).plus(c[1].times(x).times(x).over(TWO)).plus(c[2].times(x).times(x).times(x).over(THREE));
  const [left, right, whole] = [upTo(low), upTo(high), upTo(ONE)];
  const sent = high.minus(low).times(at(low).negative()).minus(left);
  const short = c[0].sign < 0 && (whole.atMost(right) || r.times(whole.minus(right)).below(sent));
  if (short || lowest.sign < 0 || sum(c).sign < 0) return ZERO;
  const charge = c[0].sign < 0 ? c[0].negative().over(r).times(ONE.plus(high.times(sum(c)).over(whole.minus(right)))) : ZERO;
  return level.minus(TWO.times(delta).times(highest.plus(charge))).times(unit);
}

// Weak duality: min_j (c_j + Σ_s ψ_s(j) − e^ε ψ_s(j − s)) − Σ_s δ μ_s, averaged with the mirror image if asked. `points`: e^ε, from
// above, and δ of all that is asked; those of a shift s are of the point that it is for, and with one point no shift says which.
export function latticeBound(stated, loss, points, sensitivity) {
  const n = Number(stated.cells);
  const psi = stated.psi.map((row) => row.map(double));
  const totals = stated.totals.map(double);
  const half = psi.length ? Math.floor((psi[0].length - 1) / 2) : 0;
  const step = sensitivity.over(wholeNumber(n)).reduced();
  const reach = half + n + 1;
  let plus = Array(2 * reach + 1).fill(0n);
  let minus = points.map(() => [...plus]);
  const shifts = points.length > 1 ? stated.shifts : stated.shifts.map((s) => [s, 0n]);
  const known = (row) => Array.isArray(row) && row.length === 2 && !Array.isArray(row[0]) && Number(row[1]) in points;
  if (!shifts.every(known)) throw new Refused("multipliers of points other than those asked");
  // Any multipliers prove a bound; these are the file's, rounded down as the claim was.
  const biggest = Math.max(1e-250, ...psi.map((row) => row.reduce((x, y) => x + y, 0)), ...totals);
  const bits = 55 - Math.ceil(Math.log2(biggest) + Math.log2(Math.max(1, psi.length)));
  const [up, down] = [1n << BigInt(Math.max(bits, 0)), 1n << BigInt(Math.max(-bits, 0))];
  const scaled = (p) => rational(p).times(new Fraction(up, down));
  let spent = ZERO;
  for (let k = 0; k < Math.min(psi.length, totals.length, shifts.length); k++) {
    const whole = psi[k].map((p) => scaled(p).floor()).map((p) => (p > 0n ? p : 0n));
    const [shift, at] = shifts[k].map(Number);
    const cap = whole.reduce((x, y) => (x < y ? y : x), scaled(totals[k]).ceil());
    spent = spent.plus(points[at][1].times(new Fraction(cap)));
    if (Math.abs(shift) > n || whole.length !== 2 * half + 1) throw new Refused("shifts beyond the sensitivity");
    whole.forEach((p, i) => {
      plus[i + n + 1] += p;
      minus[at][i + n + 1 + shift] += p;
    });
  }
  let scale = new Fraction(up, down);
  if (stated.mirrored) {
    const both = (v) => v.map((x, i) => x + v[v.length - 1 - i]);
    [plus, minus, scale, spent] = [both(plus), minus.map(both), scale.times(TWO), spent.times(TWO)];
  }
  const square = step.times(step);
  const cost = (j) => (loss === "absolute" ? wholeNumber(Math.abs(j)).times(step) : wholeNumber(j * j).times(square).minus(square.over(new Fraction(4n))));
  const received = (i) => sum(points.map(([growth], at) => growth.times(new Fraction(minus[at][i]))));
  const value = (a, i) => cost(i - reach).plus(new Fraction(a).minus(received(i)).over(scale));
  return smallest(plus.map(value)).minus(spent.over(scale));
}
