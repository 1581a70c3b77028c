// Zero-concentrated privacy of any law, by the Rényi divergences of every order.
//
// Theorem (Bun and Steinke 2016). Losses L are (ξ, ρ)-zCDP if g(θ) = log E_P e^{θL} ≤ θ (ξ + ρ (1 + θ)) for all θ > 0, g the sum of
// those of the coordinates.
//
// The second derivative of g at θ is the variance v of the losses tilted by e^{θL}, the third one their third central moment, at most
// R v where losses of one coordinate are at most R apart. So the second one is at least c = v e^{−R(b − a)} between orders a and b, v
// that of a, and what is left of g less the right side, whose second derivative is at least c − 2ρ, lies below its chord and
// (2ρ − c)(θ − a)(b − θ)/2: a parabola, largest at its ends or where its slope is 0. A pair of laws whose hockey-stick curve is
// nowhere lower has a g that is nowhere lower, so the ends of a cell may stand for the cell (composition.mjs). From some order on a
// closed form takes over: g ≤ θℓ for losses of at most ℓ; and where the density is e^(-t²/2) times a function that falls away from 0
// and is ψ(0)/ψ ≤ e^c apart at the shift r, g(θ) ≤ θ ((1 + θ) r²/2 + c).

import { upperShare } from "./composition.mjs";
import { staircaseAtoms, WHOLE } from "./discrete_laws.mjs";
import { cell, continuousCells } from "./loss_cells.mjs";
import { CONTINUOUS, Law, mills, signedMills } from "./noise_laws.mjs";
import { exp, least, ln, most, one, real, SLACK, tenTo, totalOf, zero } from "./real.mjs";

const CELLS = 2 ** 10;
const MOST_ORDERS = 600;
const ATOM = 12; // operations that a loss takes at an order
const TILTED = tenTo(-24); // above the rounding of a moment

// Whether coordinates that move so are (ξ, ρ)-zCDP: up to some order by their moments, beyond it by a closed form.
export function concentrated(name, shapes, shifts, largest, xi, rho, account) {
  const counts = shifts.map(({ count }) => real(count));
  let [squares, offsets] = [zero, largest];
  if (name === "osgt" || name === "flipped_huber") {
    const b = shapes[0];
    const rest = (shift) => most(b.minus(shift), zero);
    const huber = (shift) => b.times(b).minus(rest(shift).times(rest(shift))).doubled(-1);
    squares = totalOf(shifts.map(({ shift }, k) => shift.times(shift).times(counts[k]))).doubled(-1);
    offsets = shifts.map(({ shift }) => (name === "osgt" ? shift.times(b) : huber(shift)));
  } else if (!largest.every((loss) => loss)) {
    return false;
  }
  const offset = totalOf(offsets.map((c, k) => c.times(counts[k]))).minus(xi);
  if (offset.sign <= 0) return squares.atMost(rho);
  if (rho.atMost(squares)) return false;
  const last = most(offset.over(rho.minus(squares)).minus(one), tenTo(-3));
  const coordinates = shifts.map(({ shift }, k) => ({ ...moments(name, shapes, shift, largest[k], account), count: counts[k] }));
  return upTo(last, coordinates, xi, rho);
}

// Whether Σ count·g(θ) ≤ θ (ξ + ρ (1 + θ)) for all θ up to `last`.
function upTo(last, coordinates, xi, rho) {
  let seen = 0;
  // g less the right side, and the variance.
  const look = (theta) => {
    seen += 1;
    const found = coordinates.map(({ tilted, count }) => {
      const { mean, variance } = tilted(theta);
      return { g: theta.sign ? count.times(ln(mean)) : zero, variance: count.times(variance) };
    });
    const allowed = theta.times(xi.plus(rho.times(one.plus(theta))));
    return { theta, left: totalOf(found.map(({ g }) => g)).minus(allowed), variance: totalOf(found.map(({ variance }) => variance)) };
  };
  const apart = coordinates.map((coordinate) => coordinate.apart).reduce(most);
  const intervals = [[look(zero), look(last)]];
  while (intervals.length) {
    const [low, high] = intervals.pop();
    if (high.left.sign > 0 || seen > MOST_ORDERS) return false;
    const width = high.theta.minus(low.theta);
    const bend = rho.minus(low.variance.times(exp(apart.times(width).negative())).doubled(-1));
    if (bend.sign <= 0) continue;
    const slope = high.left.minus(low.left).over(width);
    const top = width.plus(slope.over(bend)).doubled(-1);
    const inside = top.sign > 0 && top.below(width);
    if (inside && low.left.plus(top.times(slope.plus(bend.times(width.minus(top))))).sign > 0) {
      const middle = look(low.theta.plus(high.theta).doubled(-1));
      intervals.push([middle, high], [low, middle]);
    }
  }
  return true;
}

// Losses and masses at the ends of cells.
function atoms(cells) {
  return cells.flatMap(({ p, q, low, high }) => {
    if (high.minus(low).atMost(SLACK)) return [{ mass: p, loss: high }];
    const above = least(most(upperShare({ p, q }, low, high), zero), p);
    return [{ mass: above, loss: high }, { mass: p.minus(above), loss: low }];
  });
}

// E e^{θL} of what lies further than `start` from the middle, where the density is ∝ e^(-t²/2 - offset·t) and the loss a line.
function gaussianEnds(law, start, offset, shift) {
  const [near, far] = [start.minus(shift.doubled(-1)), start.plus(shift.doubled(-1))];
  const loss = law.loss(start, shift);
  const [right, left] = [near, far].map((t) => law.upper(t).over(mills(t.plus(offset))));
  return (theta) => {
    const [up, move] = [exp(theta.times(loss)), theta.times(shift)];
    const above = right.times(up).times(signedMills(near.plus(offset).minus(move)));
    return above.plus(left.over(up).times(mills(far.plus(offset).plus(move))));
  };
}

// E_P e^{θL} of θ ≥ 0 of one coordinate, whose loss is at most `largest` or (null) has Gaussian tails, from above; the variance of L
// tilted by e^{θL}, from below; and the most that two losses are apart.
function moments(name, shapes, shift, largest, account) {
  const { cells, tail } = outcomesToTilt(name, shapes, shift, largest, account);
  const points = merged(atoms(cells));
  const tilted = (theta) => {
    account.takes(ATOM * points.length);
    let [mean, first, second] = [zero, zero, zero];
    for (const { mass, loss } of points) {
      const weight = mass.times(exp(theta.times(loss)));
      const moment = weight.times(loss);
      [mean, first, second] = [mean.plus(weight), first.plus(moment), second.plus(moment.times(loss))];
    }
    first = first.over(mean);
    const variance = tail ? zero : most(second.over(mean).times(one.minus(TILTED)).minus(first.times(first)), zero);
    return { mean: (tail ? mean.plus(tail(theta)) : mean).times(one.plus(TILTED)), variance };
  };
  const losses = points.map(({ loss }) => loss);
  return { tilted, apart: losses.reduce(most).minus(losses.reduce(least)) };
}

function outcomesToTilt(name, shapes, shift, largest, account) {
  if (name === "staircase") return { cells: staircaseAtoms(shapes, shift), tail: null };
  if (name in WHOLE) return { cells: WHOLE[name](...shapes, shift).cells(shift.floor(), 16 * CELLS).cells, tail: null };
  const law = CONTINUOUS[name](...shapes);
  account.takes(law.work * CELLS);
  if (largest) {
    const { cells, infinite } = continuousCells(law, shift, tenTo(-60), zero, CELLS);
    return { cells: [...cells, cell(infinite, zero, largest, largest)], tail: null };
  }
  const middle = shift.doubled(-1);
  const [start, offset] = name === "osgt" ? [middle, shapes[0]] : [middle.plus(shapes[0]), zero];
  const inside = new Law(law.exponent, law.upper, { end: start.plus(middle), bends: law.bends });
  const { cells } = continuousCells(inside, shift, zero, zero, CELLS);
  return { cells: cells.slice(0, -1), tail: gaussianEnds(law, start, offset, shift) };
}

// Equal losses are one.
function merged(points) {
  const sorted = [...points].sort((a, b) => a.loss.minus(b.loss).sign);
  const found = [];
  for (const { mass, loss } of sorted) {
    const last = found[found.length - 1];
    if (last && !loss.minus(last.loss).sign) last.mass = last.mass.plus(mass);
    else found.push({ mass, loss });
  }
  return found;
}
