// Noise that falls with a norm, under pure privacy or what that implies. As mechdesign/verifier/knorm.py, which states the theorems.

import { NotCovered, Refused } from "./errors.mjs";
import { double, Fraction, larger, ONE, rational, smaller, smallest, sum, TWO, ZERO } from "./rational.mjs";
import { expBounds, isObject, NEAR } from "./reading.mjs";
import { one, PI, real, two } from "./real.mjs";
import { general, shown } from "./words.mjs";

const NORMS = [1, 2, Infinity];
const TRILLION = new Fraction(10n ** 12n);
const [MOST_CAPPED, LEAST_KEPT] = [400, 1e-4];
const LEAST_SUM = 1e-280; // below which a double keeps too few digits of a sum over its largest term
const counted = (count) => new Fraction(BigInt(count));
const power = (x, order) => (order === 2 ? x.times(x) : x);
const maximumOf = (list) => list.reduce(larger);

export function knorm(result, account) {
  const { design, mechanism: law, value } = result;
  if (law.vertices !== null || Array.isArray(design.sensitivity)) throw new NotCovered("noise of the hull of a list of changes, in a page");
  if (design.rounds < 1n) throw new Refused("rounds that are none");
  const [k, order] = [Number(design.dimension), design.loss === "squared" ? 2 : 1];
  const [norm, asked] = [Number(law.norm), design.norm === null ? null : Number(design.norm)];
  const plain = law.cap === null && law.signed && law.widths === null;
  account.agrees("the noise is for the design's numbers", law.dimension === design.dimension);
  const allowed = NORMS.includes(norm) && (asked === null || asked === norm) && (plain || asked === null);
  account.agrees("the norm is one that is allowed", allowed && fits(law, norm));
  if (account.rows.some((row) => !row.holds)) return;
  const bounds = boundsOf(design.sensitivity, design.dimension);
  account.takes(10 * bounds.sizes.length + (plain ? 0 : 10 * k), 3000);
  account.takes(order === 1 ? 16 * k : 0);
  if (law.largest === null) throw new Refused("noise that does not say for which changes it is");
  const [scale, largest] = [rational(law.scale), rational(law.largest)];
  const shape = {
    norm,
    cap: law.cap === null ? null : rational(law.cap),
    signed: law.signed,
    widths: law.widths === null ? null : law.widths.map(rational),
  };
  const size = moving(shape, k);
  const held = plain ? covers(norm, bounds, largest) : hullCovers(shape, design.sensitivity, k, largest);
  account.proved(`no change has a norm above ${shown(law.largest)}`, held);
  if (!held) return;
  const loss = counted(design.rounds).times(largest).over(scale).reduced();
  const claim = `privacy losses of at most ${general(loss.toNumber(), 9)} are private as asked`;
  const lossesAlone = implied(design.privacy, loss);
  if (!lossesAlone && norm === 2 && law.gamma === null && countsDelta(design)) throw new NotCovered("noise of norm 2 that is private by its delta, in a page");
  account.proved(claim, lossesAlone);
  const stated = rational(value);
  const room = stated.over(TRILLION);
  const factor = unit(shape, k, order);
  if (law.gamma === null) {
    const radial = counted(size + 1).times(order === 2 ? counted(size + 2) : ONE);
    account.bounds(`the ${design.loss} error is at most ${shown(value)}`, factor.times(radial).times(power(scale, order)), stated, room);
  } else {
    const stairs = new Stairs(size, largest.over(scale).toNumber(), account);
    const found = stairs.moment(order, Number(law.gamma)) * factor.toNumber() * power(largest, order).toNumber();
    account.add(`the ${design.loss} error is at most ${shown(value)}`, "recomputed", rational(found).atMost(stated.plus(room)));
  }
  if (result.lower_bound !== null) leastStaircase(result, account, bounds);
}

// No radial noise of the norms tried costs less: the best staircase of each, at its least scale from below.
function leastStaircase(result, account, bounds) {
  const { design, lower_bound: bound } = result;
  const [k, order] = [Number(design.dimension), design.loss === "squared" ? 2 : 1];
  const allowed = design.norm === null ? NORMS : [Number(design.norm)];
  let tried = allowed.map((norm) => [plainShape(norm), reachedNorm(norm, bounds)]);
  if (design.norm === null && k > 1) tried = tried.concat(hulls(design.sensitivity, k));
  const epsilon = mostEpsilon(design.privacy);
  const asked = rational(bound).times(ONE.minus(rational(NEAR)));
  const holds = tried.every(([shape, largest]) => {
    const stairs = new Stairs(moving(shape, k), epsilon / Number(design.rounds), account);
    return stairs.noneBelow(order, asked.over(power(largest, order)).over(unit(shape, k, order)).toNumber());
  });
  const claim = `no radial noise of these norms costs less than ${shown(bound)}`;
  if (countsDelta(design)) account.claimedCost(claim, holds); // of norm 2 it speaks of noise that is private by its delta, too
  else account.add(claim, "recomputed", holds);
}

const plainShape = (norm) => ({ norm, cap: null, signed: true, widths: null });

function exponentOf(x) {
  let exponent = 0;
  for (; x >= 1; x /= 2) exponent += 1;
  for (; x < 0.5; x *= 2) exponent -= 1;
  return { mantissa: x, exponent };
}

// Whether cap, widths and first level are of a norm and of a staircase.
function fits(law, norm) {
  const k = Number(law.dimension);
  const widths = law.widths === null ? null : law.widths.map(Number);
  if (widths !== null && (widths.length !== k || !widths.every((w) => w >= 0 && w < Infinity))) return false;
  const size = widths === null ? k : widths.filter((w) => w > 0).length;
  const few = (x, bits) => (exponentOf(x).mantissa * 2 ** bits) % 1 === 0;
  const cap = law.cap === null ? null : Number(law.cap);
  const hull = cap === null || (law.signed && 1 < cap && cap < size && size <= MOST_CAPPED && few(cap, 12));
  const gamma = law.gamma === null ? null : Number(law.gamma);
  const stairs = gamma === null || (0 < gamma && gamma < 1 && few(gamma, 20));
  return size > 0 && hull && stairs && ((cap === null && law.signed) || norm === Infinity);
}

// Whether losses of at most this are all the privacy that is asked for.
function implied(privacy, loss) {
  if (privacy[""] === "zcdp") {
    const rho = rational(privacy.rho);
    if (loss.atMost(rho.plus(rational(privacy.xi)))) return true;
    const high = expBounds(loss)[1];
    return loss.times(high.minus(ONE)).atMost(rho.times(high.plus(ONE)));
  }
  const epsilon = rational(privacy.epsilon);
  const delta = privacy[""] === "approximate-dp" ? rational(privacy.delta) : ZERO;
  if (loss.atMost(epsilon) || !delta.sign) return loss.atMost(epsilon);
  return expBounds(loss)[1].times(ONE.minus(delta)).atMost(expBounds(epsilon)[0].plus(delta));
}

// Whether exponential noise of norm 2 is private by its delta, where its losses are too large.
function countsDelta({ privacy, norm, dimension }) {
  const asked = privacy[""] === "approximate-dp" && Number(privacy.delta) > 0 && 1n < dimension && dimension <= 2000n;
  return asked && (norm === null || Number(norm) === 2);
}

// The largest loss that is implied, to rounding, from above.
function mostEpsilon(privacy) {
  if (privacy[""] === "pure-dp") return Number(privacy.epsilon);
  if (privacy[""] === "approximate-dp") {
    const [epsilon, delta] = [Number(privacy.epsilon), Number(privacy.delta)];
    return (epsilon + Math.log1p(delta * Math.exp(-epsilon)) - Math.log1p(-delta)) * (1 + 1e-14);
  }
  const rho = Number(privacy.rho);
  let [low, high] = [rho / 2, rho + 2 * Math.sqrt(rho) + 1];
  for (;;) {
    const middle = (low + high) / 2;
    if (!(low < middle && middle < high)) break;
    if (middle * Math.tanh(middle / 2) <= rho) low = middle;
    else high = middle;
  }
  return Math.max(high, rho + Number(privacy.xi)) * (1 + 1e-14);
}

// What each coordinate changes by at most; one number where it is the same for all.
function coordinates(sensitivity) {
  if (!isObject(sensitivity)) return [rational(sensitivity)];
  const most = ["linf", "l1", "l2"].map((name) => sensitivity[name]).filter((norm) => norm !== null);
  const lowest = (list) => rational(list.reduce((a, b) => (b < a ? b : a)));
  return sensitivity.each === null ? [lowest(most)] : sensitivity.each.map((bound) => lowest([bound, ...most]));
}

// The most that |v_i| over the bounds of the coordinates sum to.
function share(sensitivity, dimension) {
  const each = coordinates(sensitivity);
  const sizes = (each.length === 1 ? Array(dimension).fill(each[0]) : each.filter((b) => b.sign > 0)).sort((a, b) => a.compare(b));
  if (!isObject(sensitivity)) return counted(sizes.length);
  let found = counted(Math.min(Number(sensitivity.l0) || sizes.length, sizes.length));
  if (sensitivity.l1 !== null) {
    let [left, filled] = [rational(sensitivity.l1), ZERO];
    for (const size of sizes) {
      filled = filled.plus(smaller(left.over(size), ONE)).reduced();
      left = left.minus(smaller(left, size)).reduced();
    }
    found = smaller(found, filled);
  }
  if (sensitivity.l2 !== null) {
    const squares = sum(sizes.map((size) => rational(rational(sensitivity.l2).over(size).toNumber() ** 2))).toNumber();
    found = smaller(found, rational(Math.sqrt(squares) * (1 + 1e-14)));
  }
  return larger(found, ONE).reduced();
}

// Whether no change has a larger norm, of a norm with a cap, with widths or for changes of one sign.
function hullCovers(shape, sensitivity, dimension, largest) {
  let each = coordinates(sensitivity);
  const widths = shape.widths || Array(each.length).fill(ONE);
  if (each.length < widths.length) each = Array(dimension).fill(each[0]);
  if (each.length !== widths.length || each.some((b, i) => widths[i].times(largest).below(b))) return false;
  if (!shape.signed && (!isObject(sensitivity) || sensitivity.signed)) return false;
  // Σ|v_i|/w_i is at most the largest of b_i/w_i, times the share
  const most = maximumOf(each.flatMap((b, i) => (widths[i].sign > 0 ? [b.over(widths[i])] : [])));
  return shape.cap === null || share(sensitivity, dimension).times(most).atMost(shape.cap.times(largest));
}

// The norms beyond the plain ones that a design tries, and the largest norm of a change.
function hulls(sensitivity, dimension) {
  const each = coordinates(sensitivity);
  const widths = smallest(each).below(maximumOf(each)) ? each : null;
  const top = widths ? ONE : each[0];
  const size = widths ? each.filter((b) => b.sign > 0).length : dimension;
  const found = [];
  if (widths) found.push([{ ...plainShape(Infinity), widths }, top]);
  if (isObject(sensitivity) && !sensitivity.signed && size > 1) found.push([{ ...plainShape(Infinity), signed: false, widths }, top]);
  if (size > MOST_CAPPED) return found;
  const most = share(sensitivity, dimension);
  const exponent = exponentOf(most.toNumber()).exponent - 12;
  const grain = exponent < 0 ? new Fraction(1n, 1n << BigInt(-exponent)) : new Fraction(1n << BigInt(exponent));
  const cap = new Fraction(most.over(grain).ceil()).times(grain).reduced();
  if (ONE.below(cap) && cap.below(counted(size))) {
    const volume = folded(size, cap, 1).minus(folded(size, cap.minus(ONE).reduced(), 1));
    const crossed = new Fraction(factorial(size) * cap.d ** BigInt(size), cap.n ** BigInt(size));
    if (volume.times(larger(ONE, crossed)).toNumber() >= LEAST_KEPT) found.push([{ ...plainShape(Infinity), cap, widths }, top]);
  }
  return found;
}

const factorials = [1n];
function factorial(n) {
  while (factorials.length <= n) factorials.push(factorials[factorials.length - 1] * BigInt(factorials.length));
  return factorials[n];
}

// The density at t of the sum of d − 1 uniform numbers, integrated so often.
function folded(dimension, t, times) {
  const [n, degree] = [dimension - 1, BigInt(dimension - 1 + times)];
  if (t.n <= 0n) return ZERO;
  let total = 0n;
  for (let i = 0n; i <= BigInt(n) && i * t.d <= t.n; i++) {
    const choices = factorial(n) / (factorial(Number(i)) * factorial(n - Number(i)));
    total += (i % 2n ? -1n : 1n) * choices * (t.n - i * t.d) ** degree;
  }
  return new Fraction(total, t.d ** degree * factorial(Number(degree))).reduced();
}

// How many coordinates get noise.
const moving = (shape, dimension) => (shape.widths === null ? dimension : shape.widths.filter((w) => w.sign > 0).length);

// E|u_i|^p of a uniform point of the ball, times the mean of w_i^p.
function unit(shape, dimension, order) {
  const d = moving(shape, dimension);
  let mean = ONE;
  if (shape.widths !== null) {
    const total = sum(shape.widths.map((w) => rational(w.toNumber() ** order))).toNumber();
    mean = rational(total * (1 + 1e-15)).over(counted(dimension));
  }
  const part = (n, over) => mean.times(new Fraction(BigInt(n), BigInt(over)));
  if (shape.cap !== null) {
    const [near, far] = [shape.cap, shape.cap.minus(ONE).reduced()].map((t) => [1, 2, 3].map((times) => folded(d, t, times)));
    const first = near[1].minus(far[1]).minus(far[0]);
    const second = TWO.times(near[2].minus(far[2]).minus(far[1])).minus(far[0]);
    return mean.times((order === 1 ? first : second).reduced()).over(near[0].minus(far[0]).reduced()).reduced();
  }
  if (!shape.signed) return order === 1 ? part(d + 2, 3 * (d + 1)) : part(d + 3, 6 * (d + 1));
  if (shape.norm === 1) return order === 1 ? part(1, d + 1) : part(2, (d + 1) * (d + 2));
  if (shape.norm === 2) return order === 1 ? part(d, d + 1).times(ratioOfGammas(BigInt(d))) : part(1, d + 2);
  return part(1, order + 1);
}

// The sums S_n of d coordinates at this ε, and E R^p at Δ = 1.
class Stairs {
  constructor(dimension, epsilon, account) {
    Object.assign(this, { dimension, epsilon, account });
    this.spread = (12 * Math.sqrt(dimension + 2) + 60) / epsilon + 4;
  }
  start() {
    const [d, centre] = [this.dimension, this.dimension / this.epsilon];
    this.account.takes(10 * this.spread);
    this.first = Math.max(0, Math.floor(centre - this.spread));
    this.last = Math.ceil(centre + this.spread);
    this.top = -Infinity;
    for (let j = this.first; j <= this.last; j++) this.top = Math.max(this.top, d * Math.log(j + 1) - this.epsilon * j);
  }
  // S_n(γ), all over one number that does not depend on γ.
  sums(gamma, ...orders) {
    const d = this.dimension;
    this.account.takes(2 * (this.last - this.first + 1));
    const found = orders.map(() => 0);
    for (let j = this.first; j <= this.last; j++) {
      const x = j + gamma;
      const term = x ? Math.exp(d * Math.log(x) - this.epsilon * j - this.top) : 0;
      orders.forEach((n, i) => (found[i] += x ? term * x ** (n - d) : n === 0 ? Math.exp(-this.top) : 0));
    }
    return found;
  }
  moment(order, gamma) {
    this.start();
    const [above, below] = this.sums(gamma, this.dimension + order, this.dimension);
    if (below <= LEAST_SUM) throw new Refused("a first level that no double resolves at this scale");
    return above / below;
  }
  ripple(n) {
    const turn = (2 * Math.PI) / this.epsilon;
    let near = 0;
    for (let m = 1; m < 65; m++) near += Math.exp((-(n + 1) / 2) * Math.log1p((turn * m) ** 2));
    return 2 * (near + Math.exp(Math.min(-n * Math.log(64 * turn) - Math.log(turn * n), 700)));
  }
  // Whether no staircase has E R^p < bound.
  noneBelow(order, bound) {
    const [d, n] = [this.dimension, this.dimension + order];
    let flat = 1;
    for (let i = 1; i <= order; i++) flat *= (d + i) / this.epsilon;
    if (bound <= Math.max(0, (flat * (1 - this.ripple(n))) / (1 + this.ripple(d)))) return true;
    if (bound > flat) return false;
    this.start();
    const cells = [[0, 1]];
    while (cells.length) {
      const [low, high] = cells.pop();
      const [middle, half] = [(low + high) / 2, (high - low) / 2];
      const [here, raw, below, fall] = this.sums(middle, n, n - 1, d, d - 1);
      const [value, slope] = [here - bound * below, n * raw - bound * d * fall];
      let bend = n * (n - 1) * this.sums(low, n - 2)[0];
      if (d > 1) bend -= bound * d * (d - 1) * this.sums(high, d - 2)[0];
      const turn = bend > 0 ? Math.min(Math.max(-slope / bend, -half), half) : slope > 0 ? -half : half;
      const least = value + slope * turn + (bend * turn ** 2) / 2;
      if (below <= LEAST_SUM || !(least >= 1e-12 * bound * below)) {
        if (half < 1e-9) return false;
        cells.push([low, middle], [middle, high]);
      }
    }
    return true;
  }
}

// What single coordinates change by at most (sizes and how many coordinates have them, from the largest on), and L₁ and L₂.
function boundsOf(sensitivity, dimension) {
  if (!isObject(sensitivity)) return { sizes: [{ size: rational(sensitivity), count: dimension }], l1: null, l2: null };
  const norms = ["linf", "l1", "l2"].map((name) => sensitivity[name]).filter((norm) => norm !== null);
  const lowest = (list) => list.reduce((a, b) => (b < a ? b : a));
  const changed = sensitivity.l0 && sensitivity.l0 < dimension ? sensitivity.l0 : dimension;
  const [l1, l2] = ["l1", "l2"].map((name) => (sensitivity[name] === null ? null : rational(sensitivity[name])));
  if (sensitivity.each === null) return { sizes: [{ size: rational(lowest(norms)), count: changed }], l1, l2 };
  if (BigInt(sensitivity.each.length) !== dimension) throw new Refused("bounds of other coordinates than the answer's");
  const each = sensitivity.each.map((bound) => rational(lowest([bound, ...norms]))).filter((size) => size.sign > 0);
  const sizes = [];
  for (const size of each.sort((a, b) => b.compare(a)).slice(0, Number(changed))) {
    const last = sizes[sizes.length - 1];
    if (last && last.size.equals(size)) last.count += 1n;
    else sizes.push({ size, count: 1n });
  }
  if (!sizes.length) throw new Refused("bounds that allow no change");
  return { sizes, l1, l2 };
}

const summed = (sizes) => sum(sizes.map(({ size, count }) => size.times(counted(count))));
const squared = (sizes) => sum(sizes.map(({ size, count }) => size.times(size).times(counted(count))));

// The largest Σ v² within ‖v‖₁ ≤ L₁: the largest bounds, filled.
function filledSquares({ sizes, l1 }) {
  if (l1 === null) return squared(sizes);
  let [square, left] = [ZERO, l1];
  for (const { size, count } of sizes) {
    const fit = left.over(size);
    const whole = fit.n / fit.d < count ? fit.n / fit.d : count;
    const filled = size.times(counted(whole));
    const part = whole < count ? smaller(left.minus(filled), size) : ZERO;
    square = square.plus(filled.times(size)).plus(part.times(part)).reduced();
    left = left.minus(filled).minus(part).reduced();
  }
  return square;
}

// The largest ‖v‖₁ within ‖v‖₂ ≤ L₂, from above.
function watered({ sizes, l2 }) {
  const most = l2.times(l2);
  if (squared(sizes).atMost(most)) return summed(sizes);
  const cut = (level) => sizes.map(({ size, count }) => ({ size: smaller(size, level), count }));
  let [low, high] = [0, double(sizes[0].size)];
  for (;;) {
    const middle = (low + high) / 2;
    if (!(low < middle && middle < high)) break;
    if (most.below(squared(cut(rational(middle))))) high = middle;
    else low = middle;
  }
  const twice = TWO.times(rational(high));
  const kept = cut(rational(high));
  return summed(kept).minus(squared(kept).over(twice)).plus(most.over(twice));
}

// Whether no change has a larger norm.
function covers(norm, bounds, largest) {
  const { sizes, l1, l2 } = bounds;
  if (norm === Infinity) return sizes[0].size.atMost(largest);
  if (norm === 2) return filledSquares(bounds).atMost(largest.times(largest)) || (l2 !== null && l2.atMost(largest));
  const others = [l1, l2 && l2.sign ? watered(bounds) : null].filter((bound) => bound && bound.sign);
  return smallest([summed(sizes), ...others]).atMost(largest);
}

// The largest norm of a change: that of ℓ₂ to rounding, the others from above.
function reachedNorm(norm, bounds) {
  const { sizes, l1, l2 } = bounds;
  if (norm === Infinity) return sizes[0].size;
  if (norm === 2) {
    const found = rational(Math.sqrt(filledSquares(bounds).toNumber()));
    return l2 === null ? found : smaller(found, l2);
  }
  return smallest([summed(sizes), l1, l2 && watered(bounds)].filter((bound) => bound !== null));
}

// Γ(k/2)/(√π Γ((k + 1)/2)): 1 for k = 1, and for k and k + 1 together 2/πk.
function ratioOfGammas(k) {
  let found = one;
  for (let j = 1n; j < k; j++) found = two.over(PI.times(real(j)).times(found));
  return found.toFraction();
}
