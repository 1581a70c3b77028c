// The privacy loss of one Laplace coordinate, with a ratio r of change and scale.
//
// Laplace noise moved by r scales loses l, −r ≤ l ≤ r: −r and r with the masses ½e^(−r) and ½, in between with the density
// ¼ e^((l − r)/2). On a grid of step h the split of composition.mjs is the same for all cells but for the factor e^(l/2): of the cell
// from a to a + h, the mass
//
//     ½ e^((a − r)/2) ((e^(h/2) − 1) − (1 − e^(−h/2))) / (1 − e^(−h))
//
// moves to its upper end. Losses are counted from the largest one, which is a grid point then.

import { short, upperShare } from "./composition.mjs";
import { exp, half, least, most, one, real, zero } from "./real.mjs";

const STEPS = real(512); // of a ratio, at least

// The loss of one Laplace coordinate less its largest value, on a step that is the unit times a power of 2.
export function laplaceLosses(grid, ratio, unit) {
  const coarsest = ratio.over(STEPS);
  let step = short(unit);
  while (coarsest.below(step)) step = step.doubled(-1);
  while (step.doubled().atMost(coarsest)) step = step.doubled();
  const whole = Number(ratio.doubled().over(step).floor()); // cells between −r and r; of another one there is a rest
  grid.account.takes(20 * whole);
  const [up, down] = [exp(step.doubled(-1)), exp(step.doubled(-1).negative())];
  const moved = half.times(up.minus(one).minus(one.minus(down))).over(one.minus(exp(step.negative())));
  const kept = half.times(up.minus(one)).minus(moved);
  const masses = new Array(whole + 2).fill(0n); // of −(whole + 1), …, 0 steps
  const last = whole + 1;
  masses[last] = grid.up(half);
  for (let [j, growth] = [1, down]; j <= whole; j++, growth = growth.times(down)) {
    masses[last + 1 - j] += grid.up(moved.times(growth));
    masses[last - j] += grid.up(kept.times(growth));
  }
  const [rest, smallest] = [ratio.doubled().minus(step.times(real(whole))), exp(ratio.negative())];
  const [more, fewer] = [exp(rest.doubled(-1)).minus(one), one.minus(exp(rest.doubled(-1).negative()))];
  const rim = half.times(smallest).times(more); // of the losses from −r on, as far as the first cell
  const low = ratio.minus(step.times(real(last)));
  for (const [p, q] of [[rim, half.times(fewer)], [half.times(smallest), half]]) {
    const above = least(most(upperShare({ p, q }, low, low.plus(step)), zero), p);
    masses[1] += grid.up(above);
    masses[0] += grid.up(p.minus(above));
  }
  return grid.trimmed({ step, first: -whole - 1, masses, infinite: 0n });
}
