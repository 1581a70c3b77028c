// δ of noise on several coordinates in several rounds, each of which sees all records or a Poisson sample of them.
//
// Normal noise is one coordinate of shift (Σ v_i²)^½, and one coordinate alone has δ = P(L > ε) − e^ε Q(L > ε), in closed form. Other
// losses are composed (composition.mjs).
//
// Sampling. A round that sees a sample at rate q has the losses of q P + (1 − q) Q against Q and of P against (1 − q) P + q Q, the
// second by symmetry: both curves rise with that of (P, Q). With δ' that of (P, Q) and x = e^ε ≥ 1 they are
//
//     q δ'(ε'),  e^ε' = (x − 1 + q)/q,    and    (1 − x (1 − q)) δ'(ε''),  e^ε'' = q x/(1 − x (1 − q))  where that is positive.
//
// The first one is never lower, so that it is δ of one round: 1 − x (1 − q) ≤ q, and ε'' ≥ ε' because of
// q² x − (x − 1 + q)(1 − x (1 − q)) = (x − 1)² (1 − q) ≥ 0. Of several rounds both directions are composed.

import { EXPONENTIAL, Grid, refined, short } from "./composition.mjs";
import { staircaseAtoms, WHOLE } from "./discrete_laws.mjs";
import { TooLarge } from "./errors.mjs";
import { laplaceLosses } from "./independent.mjs";
import { atom, cell, continuousCells } from "./loss_cells.mjs";
import { CONTINUOUS } from "./noise_laws.mjs";
import { exp, ln, most, one, real, ROUND, SLACK, squareRoot, tenTo, totalOf, zero } from "./real.mjs";

const WIDTH = 16; // points of the grid for each cell of a coordinate's losses, or of those of a round that is sampled
const MOST_LOSSES = 10n ** 9n;
const BILLIONTH = tenTo(-9);

// δ at ε, from above, in one of the cases, each as bad as every change: in the least of the coarsest grid on finer ones. `asked` is a
// law at unit scale and what is asked of it: {name, shapes, rounds, rate, epsilon, delta, account}.
export function leastConsumed(asked, cases, aim) {
  let left = cases;
  const found = (points) => {
    const all = left.map((shifts) => ({ shifts, delta: consumed(asked, shifts, points) }));
    const best = all.reduce((a, b) => (b.delta.below(a.delta) ? b : a));
    left = [best.shifts];
    return best.delta;
  };
  return cases.every((shifts) => isClosed(asked, shifts)) ? found(0) : refined(found, asked.delta, aim, asked.account);
}

// Whether δ is in closed form, whatever the grid: of one loss, or of normal noise, and at most one sample.
export function isClosed({ name, rounds, rate }, shifts) {
  const single = name === "norm" || rounds * shifts.reduce((sum, { count }) => sum + count, 0n) === 1n;
  return single && (!rate.below(one) || rounds === 1n);
}

// δ at ε of all rounds and coordinates, from above.
function consumed(asked, shifts, points) {
  const { name, rounds, rate, epsilon, delta, account } = asked;
  const sampled = rate.below(one);
  if (sampled && rounds === 1n) {
    const unsampled = { ...asked, rate: one, epsilon: beforeSampling(asked, epsilon), delta: delta.over(rate) };
    return rate.times(consumed(unsampled, shifts, points));
  }
  let times = sampled ? 1n : rounds;
  if (name === "norm") {
    const square = totalOf(shifts.map(({ shift, count }) => shift.times(shift).times(real(count)))).times(real(times));
    [shifts, times] = [[{ shift: squareRoot(square).times(ROUND), count: 1n }], 1n];
  }
  const count = shifts.reduce((sum, alike) => sum + alike.count, 0n) * times;
  if (count > MOST_LOSSES || rounds > MOST_LOSSES) throw new TooLarge(`too large to check: more than ${MOST_LOSSES} losses are composed`);
  if (isClosed(asked, shifts)) return alone(asked, shifts[0].shift);
  const tail = delta.times(BILLIONTH).over(real(count * rounds));
  const grid = new Grid(tail, points, account);
  if (!sampled) {
    const { whole, origin } = composed(asked, grid, shifts, times, epsilon);
    return grid.delta(whole, epsilon.minus(origin));
  }
  const bend = beforeSampling(asked, epsilon.over(real(rounds)));
  if (count === 1n) {
    const { cells, infinite } = outcomes(asked, shifts[0].shift, tail, bend, points);
    return sampledRounds(asked, grid, cells, infinite);
  }
  let { whole, origin } = composed(asked, grid, shifts, 1n, bend);
  while (whole.masses.length > points / 4) whole = grid.coarser(whole);
  const cells = whole.masses.map((mass, k) => atom(grid.mass(mass), whole.step.times(real(whole.first + k)).plus(origin)));
  return sampledRounds(asked, grid, cells, grid.mass(whole.infinite));
}

// The loss of so many rounds without sampling, less an origin; δ bends at ε, each coordinate's at its share of it.
function composed(asked, grid, shifts, times, epsilon) {
  const moved = totalOf(shifts.map(({ shift, count }) => shift.times(real(count))));
  const share = epsilon.over(moved).over(real(times));
  const unit = short(share.times(shifts[shifts.length - 1].shift));
  const parts = shifts.map(({ shift, count }) => {
    // a cell that ends a last digit beyond a grid point would be spread over two steps
    const { losses, start } = coordinateLosses(asked, grid, shift, short(share.times(shift)), unit, epsilon);
    return { whole: grid.power(losses, count), origin: start.times(real(count * times)) };
  });
  return { whole: grid.power(grid.all(parts.map(({ whole }) => whole)), times), origin: totalOf(parts.map(({ origin }) => origin)) };
}

// The loss that becomes ε where a sample is seen.
const beforeSampling = ({ rate }, epsilon) => ln(one.plus(exp(epsilon).minus(one).over(rate)));

// The loss of one coordinate less an origin, `start`, such that few or alike losses are points of the grid.
function coordinateLosses(asked, grid, shift, bend, unit, epsilon) {
  const { name, shapes } = asked;
  if (name === "laplace") return { losses: laplaceLosses(grid, shift, epsilon), start: shift };
  const exact = name in WHOLE || name === "staircase";
  let start = zero;
  if (name === "dlaplace") {
    [start, unit] = [shapes[0].times(shift), shapes[0].doubled()];
  } else if (name === "discrete_gaussian") {
    const square = shapes[0].times(shapes[0]);
    [start, unit] = [shift.times(shift).over(square).doubled(-1), one.over(square)];
  } else if (name === "staircase") {
    unit = shapes[0];
  }
  const { cells, infinite } = outcomes(asked, shift, grid.tail, bend, grid.points);
  const growth = exp(start);
  const moved = cells.map(({ p, q, low, high }) => cell(p, q.times(growth), low.minus(start), high.minus(start)));
  return { losses: grid.losses(moved, unit, infinite, exact), start };
}

// Cells of the loss of one coordinate for a grid of so many points, and the mass whose loss is infinite.
function outcomes({ name, shapes, account }, shift, tail, bend, points) {
  if (name === "staircase") return { cells: staircaseAtoms(shapes, shift), infinite: zero };
  if (name in WHOLE) {
    const found = WHOLE[name](...shapes, shift).cells(shift.floor(), points / 2);
    account.takes(EXPONENTIAL * found.cells.length);
    return found;
  }
  const law = CONTINUOUS[name](...shapes);
  account.takes((law.work * points) / WIDTH);
  return continuousCells(law, shift, tail, bend, points / WIDTH);
}

// δ of one coordinate: P − e^ε Q of the outcomes whose loss is larger than ε.
function alone({ name, shapes, epsilon }, shift) {
  const growth = exp(epsilon);
  if (name === "staircase")
    return totalOf(staircaseAtoms(shapes, shift).map(({ p, q }) => most(p.minus(growth.times(q)), zero))).plus(SLACK);
  if (name in WHOLE) return WHOLE[name](...shapes, shift).delta(shift.floor(), epsilon);
  const law = CONTINUOUS[name](...shapes);
  const [low, high] = law.around(epsilon, shift);
  const beyond = growth.times(law.above(high.plus(shift.doubled(-1))));
  return law.above(low.minus(shift.doubled(-1))).minus(beyond).plus(SLACK);
}

// δ of all rounds, each of which sees a sample: the larger one of both directions.
function sampledRounds({ rate, rounds, epsilon, account }, grid, cells, infinite) {
  account.takes(10 * EXPONENTIAL * cells.length);
  const rest = one.minus(rate);
  const missing = most(one.minus(totalOf(cells.map(({ q }) => q))), zero); // of Q alone
  const removedLoss = (loss) => ln(rate.times(exp(loss)).plus(rest));
  const addedLoss = (loss) => ln(rest.plus(rate.times(exp(loss.negative())))).negative();
  const removed = cells.map(({ p, q, low, high }) => cell(rate.times(p).plus(rest.times(q)), q, removedLoss(low), removedLoss(high)));
  removed.push(cell(rest.times(missing), missing, ln(rest), ln(rest)));
  const added = cells.map(({ p, q, low, high }) => cell(p, rest.times(p).plus(rate.times(q)), addedLoss(low), addedLoss(high)));
  added.push(cell(infinite, rest.times(infinite), ln(rest).negative(), ln(rest).negative()));
  const found = [[removed, rate.times(infinite)], [added, zero]].map(([held, beyond]) => {
    const each = grid.losses(held, epsilon.over(real(rounds)), beyond);
    return grid.delta(grid.power(each, rounds), epsilon);
  });
  return found.reduce(most);
}
