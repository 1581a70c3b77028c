// How far the coordinates of an answer are moved by a change that is as bad as every one that is allowed.
//
// Sorted by size, the k-th coordinate of a change moves by at most its bound, by L₁/k and by L₂/√k. Under a log-concave law two
// coordinates that move by a and b are more private than one that moves by a + b (by way of the data set in which the first alone has
// moved, and as tests by thresholds are the best ones), so that all of L₁ may stand on one coordinate. Normal noise sees the ℓ₂ norm
// alone, a staircase whether a coordinate moves.

import { WHOLE } from "./discrete_laws.mjs";
import { Refused, TooLarge } from "./errors.mjs";
import { least, most, real, ROUND, squareRoot, totalOf, zero } from "./real.mjs";
import { pairwise } from "./reading.mjs";

const MOST_BOUNDS = 10 ** 5;
const ALIKE = 12; // of coordinates that move alike

// Lists of {shift, count}: sizes, the largest first, and how many coordinates move so far. Each list alone is as bad as every change.
export function worstShifts(sensitivity, dimension, name, account) {
  if (typeof sensitivity !== "object") return [[{ shift: real(sensitivity), count: dimension }]];
  const whole = Object.hasOwn(WHOLE, name);
  const norms = ["linf", "l1", "l2"].map((bound) => sensitivity[bound]).filter((bound) => bound !== null);
  if (!norms.every((bound) => bound > 0)) throw new Refused("bounds that allow no change");
  const moving = sensitivity.l0 && sensitivity.l0 < dimension ? sensitivity.l0 : dimension;
  if (sensitivity.each === null && norms.length === 1 && norms[0] === sensitivity.linf) {
    const shift = real(norms[0]);
    return [[{ shift: whole ? real(shift.floor()) : shift, count: moving }]];
  }
  if (dimension > MOST_BOUNDS) throw new TooLarge(`too large to check: bounds of more than ${MOST_BOUNDS} coordinates`);
  account.takes(25 * Number(dimension));
  const each = sensitivity.each ?? new Array(Number(dimension)).fill(norms.reduce(lower));
  if (BigInt(each.length) !== dimension || !each.every((bound) => bound >= 0))
    throw new Refused("bounds of other coordinates than the answer's");
  const moved = each.map((bound) => norms.reduce(lower, bound)).filter((bound) => bound > 0).map(real);
  const bounds = moved.sort((a, b) => b.minus(a).sign).slice(0, Number(moving));
  if (!bounds.length) throw new Refused("bounds that allow no change");
  const top = bounds[0];
  const sum = stated(sensitivity.l1) ?? totalOf(bounds);
  const norm = (stated(sensitivity.l2) ?? squareRoot(real(dimension)).times(top)).times(ROUND);
  if (name === "norm") return [[{ shift: least(largestNorm(bounds, sum), norm), count: 1n }]];
  if (name === "staircase") return [[{ shift: top, count: BigInt(bounds.length) }]];
  const envelope = bounds.map((bound, k) => {
    const place = real(k + 1);
    return least(bound, least(sum.over(place).times(ROUND), norm.over(squareRoot(place))));
  });
  const largestSum = least(sum, least(totalOf(envelope), squareRoot(real(bounds.length)).times(norm)));
  // two that fit into one largest bound are moved into one
  const fewer = Math.min(bounds.length, Math.max(Number(largestSum.doubled().over(top).ceil()) - 1, 1));
  const packed = Array.from({ length: fewer }, (_, k) => least(top, largestSum.over(real(k + 1)).times(ROUND)));
  let vectors = [envelope, packed, [largestSum]];
  if (whole) vectors = vectors.map((vector) => vector.map((v) => real(v.floor())));
  const cases = vectors.map((vector) => grouped(vector.filter((v) => v.sign > 0)));
  const different = cases.filter((moved, k) => !cases.slice(0, k).some((other) => alike(moved, other)));
  return different.sort((a, b) => a.length - b.length);
}

const alike = (one, other) =>
  one.length === other.length && one.every(({ shift, count }, k) => count === other[k].count && !shift.minus(other[k].shift).sign);

const lower = (a, b) => (b < a ? b : a);
// A bound of the file; null where it bounds nothing.
const stated = (bound) => (bound && bound < Infinity ? real(bound) : null);

// The largest ℓ₂ norm within these bounds and an ℓ₁ norm: the largest bounds, filled.
function largestNorm(bounds, sum) {
  let [square, left] = [zero, sum];
  for (const bound of bounds) {
    const moved = least(bound, left);
    [square, left] = [square.plus(moved.times(moved)), most(left.minus(bound), zero)];
  }
  return squareRoot(square).times(ROUND);
}

// Equal shifts counted; where there are many, groups as large as their largest, cut where the sum of squares falls most.
function grouped(vector) {
  const sizes = [];
  for (const shift of [...vector].sort((a, b) => b.minus(a).sign)) {
    const last = sizes[sizes.length - 1];
    if (last && last.shift.atMost(shift)) last.count += 1;
    else sizes.push({ shift, count: 1 });
  }
  const squares = sizes.map(({ shift }) => shift.toNumber() ** 2);
  const before = [0];
  for (const { count } of sizes) before.push(before[before.length - 1] + count);
  let cuts = [0, sizes.length];
  while (cuts.length <= Math.min(ALIKE, sizes.length)) {
    let [best, place] = [-Infinity, null];
    for (const [a, b] of pairwise(cuts))
      for (let i = a + 1; i < b; i++) {
        const saved = (squares[a] - squares[i]) * (before[b] - before[i]);
        if (saved >= best) [best, place] = [saved, i];
      }
    cuts = [...cuts, place].sort((a, b) => a - b);
  }
  return pairwise(cuts).map(([a, b]) => ({ shift: sizes[a].shift, count: BigInt(before[b] - before[a]) }));
}
