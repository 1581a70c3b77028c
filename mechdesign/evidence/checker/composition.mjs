// δ of a composition of privacy losses, bounded from above on a grid.
//
// Theorem (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, "Connect the Dots"). Let a cell of outcomes have mass p under one
// data set and q under its neighbour, with losses log dP/dQ in [a, b]. Two atoms at a and b with the same p and q in all,
//
//     p_b = (p − e^a q) / (1 − e^(a − b)),    p_a = p − p_b,
//
// have a hockey-stick curve that is nowhere lower. A pair of laws whose curve is nowhere lower may take the place of another one in
// any composition, more P and less Q never lower it, and δ(ε) = Σ P(l) (1 − e^(ε − l)) over losses l > ε, plus the mass whose loss is
// infinite.
//
// So losses are put on multiples of a step, each split between its two neighbours; the error falls with the square of the step. Laws
// are composed by multiplying two big numbers with one slot a grid point, masses rounded up. Before two compositions of
// more than so many points are composed their step is doubled, by the same split; tails are cut into the mass of infinite loss.

import { Refused, TooLarge } from "./errors.mjs";
import { Queue } from "./queue.mjs";
import { ceilDivide, maximum } from "./rational.mjs";
import { exp, half, least, most, one, quotient, Real, real, SLACK, tenTo, zero } from "./real.mjs";

export const EXPONENTIAL = 20; // operations that one takes, as `Account.takes` counts; a logarithm takes twice as many
const SHORT = 84; // bits of a step: its multiples are exact
const SMALLEST = 182; // bits: two losses that are less apart are one in 55 decimals
const LONGEST = 2 ** 22; // points before they are halved in number
const POINTS = [2 ** 10, 2 ** 12, 2 ** 13, 2 ** 14, 2 ** 15]; // of the grid: where one leaves δ above the budget, a finer one decides
const sumOf = (masses) => masses.reduce((a, b) => a + b, 0n);

// The unit in a few bits, to the nearest: a unit that is a short number but for its rounding is that number.
export function short(unit) {
  const places = SHORT - unit.magnitude;
  return new Real(unit.doubled(places).plus(half).floor(), -places);
}

// The exponent of the greatest power of 10 that is at most this.
function decimalExponent(x) {
  let found = Math.floor(x.magnitude * Math.log10(2)) - 1;
  while (tenTo(found + 1).atMost(x)) found += 1;
  return found;
}

// δ from above: on two coarse grids, then on the first one that should keep the budget; else on the finest.
//
// The error falls with the square of the points, and work grows with them: both are known after two grids, so that what is too large
// is not begun. Below the budget one finer grid is taken where δ is not as little as the aim.
export function refined(consumed, budget, aim, account) {
  const tried = [];
  let [lowest, cost] = [one, 0];
  for (const points of POINTS) {
    const [before, last] = tried.slice(-2);
    if (last) {
      const error = before.found.minus(last.found).over(real((last.points / before.points) ** 2 - 1));
      const fall = error.times(one.minus(quotient(BigInt(last.points ** 2), BigInt(points ** 2))));
      const above = budget.below(lowest);
      if (above && budget.below(last.found.minus(fall)) && points < POINTS[POINTS.length - 1]) continue;
      if ((cost * points) / last.points > account.left) {
        if (above) throw new TooLarge(`too large to check: a composition on a grid of ${points} points`);
        return lowest;
      }
    }
    const left = account.left;
    const found = last ? consumed(points) : account.atFirst(() => consumed(points));
    cost = left - account.left;
    tried.push({ points, found });
    const kept = lowest.atMost(budget);
    lowest = least(lowest, found);
    if (found.atMost(aim) || kept) break;
  }
  return lowest;
}

// The mass of a cell that goes to its upper end.
export function upperShare({ p, q }, low, high) {
  const shrink = one.minus(exp(low.minus(high)));
  if (shrink.magnitude < -SMALLEST) throw new Refused("malformed: losses that decimals do not tell apart");
  return p.minus(exp(low).times(q.minus(SLACK))).over(shrink);
}

// Losses: masses, in units of 10^-digits, of the losses (first + i)·step, and that of the infinite loss.
export class Grid {
  // `tail`: mass that may be moved to an infinite loss by every operation; `points`: the most multiples of the step,
  // on average, of two losses that are composed.
  constructor(tail, points, account) {
    Object.assign(this, { tail, points, account });
    this.digits = 9 - decimalExponent(tail);
    this.unit = 10n ** BigInt(this.digits);
    this.realUnit = real(this.unit);
  }
  // A mass in the grid's unit, rounded up.
  up(mass) {
    const more = mass.plus(SLACK);
    return more.sign > 0 ? more.times(this.realUnit).ceil() : 0n;
  }
  // A number of units as a mass.
  mass(units) {
    return real(units).over(this.realUnit);
  }
  // The loss of these outcomes, and of the mass of infinite loss, on a step that is the unit times a power of 2.
  //
  // Where the losses are exact multiples of the unit, no finer step is taken.
  losses(cells, unit, infinite, exact = false) {
    const reaches = cells.filter(({ p }) => this.tail.below(p)).flatMap(({ low, high }) => [low.absolute(), high.absolute()]);
    const finest = reaches.reduce(most, zero).over(real(this.points));
    if (!finest.sign) throw new Refused("malformed: no outcome has any loss");
    let step = short(unit);
    while (!exact && finest.doubled().below(step)) step = step.doubled(-1);
    while (step.below(finest)) step = step.doubled();
    this.account.takes(2 * EXPONENTIAL * cells.length);
    const at = new Map();
    const add = (place, mass) => at.set(place, (at.get(place) ?? 0n) + mass);
    for (const { p, q, low, high } of cells) {
      const below = Number(low.over(step).plus(SLACK).floor());
      const above = Math.max(Number(high.over(step).minus(SLACK).ceil()), below + 1);
      const whole = this.up(p);
      const moved = this.up(least(upperShare({ p, q }, step.times(real(below)), step.times(real(above))), p));
      add(above, moved);
      add(below, maximum(whole - moved, 0n) + 1n);
    }
    const first = [...at.keys()].reduce((a, b) => Math.min(a, b));
    const count = [...at.keys()].reduce((a, b) => Math.max(a, b)) - first + 1;
    if (count > LONGEST) throw new TooLarge("too large to check: losses that are too far apart");
    const masses = Array.from({ length: count }, (_, i) => at.get(first + i) ?? 0n);
    return this.trimmed({ step, first, masses, infinite: this.up(infinite) });
  }
  // Cut tails: losses above become infinite, losses below rise to the least that is kept.
  trimmed({ step, first, masses, infinite }) {
    const small = this.tail.times(this.realUnit).floor();
    let [end, cut] = [masses.length, 0n];
    while (end > 1 && cut + masses[end - 1] <= small) cut += masses[--end];
    let [start, raised] = [0, 0n];
    while (start < end - 1 && raised + masses[start] <= small) raised += masses[start++];
    const kept = masses.slice(start, end);
    kept[0] += raised;
    return { step, first: first + start, masses: kept, infinite: infinite + cut };
  }
  // The same on twice the step: losses between its multiples are split.
  coarser({ step, first, masses, infinite }) {
    const share = this.realUnit.over(one.plus(exp(step.negative()))).ceil() + 1n; // of the upper neighbour
    const start = Math.floor(first / 2);
    const halved = new Array(Math.floor((first + masses.length) / 2) - start + 1).fill(0n);
    masses.forEach((mass, k) => {
      const i = first + k;
      const below = Math.floor(i / 2) - start;
      if (i % 2 === 0) {
        halved[below] += mass;
      } else {
        const above = ceilDivide(mass * share, this.unit);
        halved[below + 1] += above;
        halved[below] += maximum(mass - above, 0n) + 1n;
      }
    });
    return this.trimmed({ step: step.doubled(), first: start, masses: halved, infinite });
  }
  // The loss of both.
  product(left, right) {
    while (left.step.below(right.step)) left = this.coarser(left);
    while (right.step.below(left.step)) right = this.coarser(right);
    if (left.step.below(right.step)) throw new Refused("malformed: losses on steps that are no powers of 2 apart");
    while (left.masses.length + right.masses.length > 2 * this.points) [left, right] = [this.coarser(left), this.coarser(right)];
    const masses = this.multiplied(left.masses, right.masses);
    const infinite = left.infinite * (sumOf(right.masses) + right.infinite) + right.infinite * sumOf(left.masses);
    return this.trimmed({ step: left.step, first: left.first + right.first, masses, infinite: infinite / this.unit + 1n });
  }
  // Σ_i left_i right_(k − i) of every k, rounded up: one product of two numbers that hold a mass in so many hexadecimal digits.
  multiplied(left, right) {
    const decimals = 2 * this.digits + String(this.points).length + 4; // masses of slightly more than 1 in all
    const slot = Math.ceil(decimals * Math.log2(10) / 4);
    const packed = (masses) => BigInt(`0x${masses.map((mass) => mass.toString(16).padStart(slot, "0")).join("")}`);
    const count = left.length + right.length - 1;
    this.account.takes((decimals * count) / 8);
    const digits = (packed(left) * packed(right)).toString(16).padStart(slot * count, "0");
    return Array.from({ length: count }, (_, k) => ceilDivide(BigInt(`0x${digits.slice(k * slot, (k + 1) * slot)}`), this.unit));
  }
  // The loss of all of these: the two of the least range first, so that most are split on fine grids alone.
  all(parts) {
    const queue = new Queue();
    const add = (part, number) => queue.add(part.masses.length * part.step.toNumber(), number, part);
    parts.forEach(add);
    for (let number = parts.length; queue.length > 1; number++) add(this.product(queue.take(), queue.take()), number);
    return queue.take();
  }
  // The loss of so many independent ones.
  power(base, times) {
    let found = null;
    for (;;) {
      if (times % 2n) found = found === null ? base : this.product(found, base);
      times /= 2n;
      if (!times) return found;
      base = this.product(base, base);
    }
  }
  // δ at ε, from above; up to 10⁹ losses may have been rounded by `SLACK` steps each.
  delta({ step, first, masses, infinite }, epsilon) {
    this.account.takes(EXPONENTIAL * masses.length);
    const bend = epsilon.minus(tenTo(9).times(SLACK).times(step));
    let sum = real(infinite);
    masses.forEach((mass, k) => {
      const loss = step.times(real(first + k));
      if (mass && bend.below(loss)) sum = sum.plus(real(mass).times(one.minus(exp(bend.minus(loss)))));
    });
    return sum.over(this.realUnit).times(one.plus(SLACK));
  }
}
