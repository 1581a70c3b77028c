// Cells of the privacy loss of a continuous law: outcomes of mass p and q under neighbours, with losses between low and high.
//
// The loss increases with the place s from the middle between the two centres and is odd (noise_laws.mjs). So the cell between two
// places has its losses between theirs, and its mirror image has p and q exchanged.

import { Queue } from "./queue.mjs";
import { fall } from "./noise_laws.mjs";
import { least, most, one, quotient, zero } from "./real.mjs";
import { pairwise } from "./reading.mjs";

const LOWEST = -700; // of an exponent of a double

export const cell = (p, q, low, high) => ({ p, q, low, high });
// Outcomes of one loss.
export const atom = (p, loss) => cell(p, p.times(fall(loss)), loss, loss);

// Cells at a shift, and the mass of at most `tail`, or beyond the support, whose loss is taken as infinite.
//
// No cell reaches across the loss `bend`, the share of this coordinate where all losses together are ε. So δ moves with a cell of
// loss L as e^{θL}, θ such that losses tilted by it have this mean. Halved are the cells that weigh most, by their tilted mass and the
// square of their range of losses: first with θ = 0, then, of an eighth of `count`, with the θ that they tell.
export function continuousCells(law, shift, tail, bend, count) {
  const middle = shift.doubled(-1);
  let last = middle;
  while (tail.below(law.above(last.minus(middle)))) last = last.times(quotient(5n, 4n));
  if (law.end) last = least(last, law.end.minus(middle));
  if (last.sign <= 0) return { cells: [cell(zero, one, zero, zero)], infinite: one }; // the laws share no point
  const look = (s) => ({ s, p: law.above(s.minus(middle)), q: law.above(s.plus(middle)), loss: law.loss(s, shift) });
  const places = [zero, last, ...law.bends.flatMap((t) => [t.minus(middle).absolute(), t.plus(middle)]), ...law.around(bend, shift)];
  const points = inOrder(places.filter((s) => s.atMost(last))).map(look);
  const coarse = subdivided(pairwise(points), look, 0, Math.floor(count / 8));
  const cells = subdivided(coarse, look, tilt(coarse.map(between), bend.toNumber()), count)
    .map(between)
    .flatMap((each) => [each, cell(each.q, each.p, each.high.negative(), each.low.negative())]);
  const beyond = points[points.length - 1];
  // Far on the other side no loss is larger than at its end: less Q, and the more P there, is never more private.
  const opposite = beyond.loss.negative();
  return { cells: [...cells, cell(beyond.q, zero, opposite, opposite)], infinite: beyond.p };
}

const between = ([a, b]) => cell(a.p.minus(b.p), a.q.minus(b.q), a.loss, b.loss);

// Different numbers in increasing order.
function inOrder(list) {
  const sorted = [...list].sort((a, b) => a.minus(b).sign);
  return sorted.filter((x, k) => k === 0 || sorted[k - 1].below(x));
}

// Neighbouring places, until there are `count` pairs: one more between those that weigh most.
function subdivided(pairs, look, theta, count) {
  const top = pairs[pairs.length - 1][1].loss.toNumber();
  const weight = (a, b) => {
    const tilted = most(a.p.minus(b.p), zero).toNumber() * Math.exp(Math.max(theta * (b.loss.toNumber() - top), LOWEST));
    return -(b.loss.minus(a.loss).toNumber() ** 2) * tilted;
  };
  const queue = new Queue();
  pairs.forEach(([a, b], i) => queue.add(weight(a, b), i, [a, b]));
  for (let i = queue.length; i < count; i++) {
    const [a, b] = queue.take();
    const middle = look(a.s.plus(b.s).doubled(-1));
    queue.add(weight(a, middle), 2 * i, [a, middle]);
    queue.add(weight(middle, b), 2 * i + 1, [middle, b]);
  }
  return queue.items().sort(([a], [b]) => a.s.minus(b.s).sign);
}

// θ ≥ 0 at which losses tilted by e^{θL} have this mean, about.
function tilt(cells, mean) {
  const losses = cells.flatMap(({ p, q, low, high }) => {
    const loss = low.plus(high).toNumber() / 2;
    return [[loss, p.toNumber()], [-loss, q.toNumber()]];
  });
  const top = losses.reduce((highest, [loss]) => Math.max(highest, loss), -Infinity);
  const reached = (theta) =>
    losses.reduce((sum, [loss, mass]) => sum + (loss - mean) * mass * Math.exp(Math.max(theta * (loss - top), LOWEST)), 0) >= 0;
  let [low, high] = [0, 1];
  while (!reached(high) && high < 2 ** 30) [low, high] = [high, 2 * high];
  for (let step = 0; step < 20; step++) {
    const middle = (low + high) / 2;
    [low, high] = reached(middle) ? [low, middle] : [middle, high];
  }
  return low;
}
