// Of which mechanisms the lower bound speaks, and the status that value, bound and gap allow.
//
// A design seeks the best of every mechanism that answers its question, of independent noise of one law, of one family or of one
// menu. Its lower bound speaks of the same class, unless the theorem of its proof says more. "Optimal" is a result whose design
// seeks the best of every mechanism and whose value is as close to the bound as was asked; in a smaller class it is "best of its
// class".

import { double } from "./rational.mjs";
import { optional } from "./reading.mjs";

const [EVERY, FAMILY, MENU] = ["every mechanism", "this family", "this menu"];
const [INDEPENDENT, LOG_CONCAVE] = ["independent noise of one law", "symmetric log-concave noise"];
const SEARCHED_SHAPES = ["flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase"];
const DISCRETE = ["discrete_laplace", "discrete_gaussian"];

// The class of which a design seeks the best.
function sought(design) {
  const kind = design[""];
  const bins = optional(design, "bins", null);
  const searched = bins !== null && typeof bins === "object" && optional(bins, "", "") === "bin-search";
  if (kind === "optimal-quantizer") return searched ? MENU : EVERY;
  if (kind === "optimal-noise") return design.dimension === 1n ? EVERY : INDEPENDENT;
  if (["metric-quantizer", "metric-channel", "bounded-count", "local-workload", "user-histogram"].includes(kind)) return EVERY;
  if (kind === "knorm" && growsWithTheNorm(design)) return EVERY;
  return kind === "knorm" || kind === "vector-design" ? MENU : FAMILY;
}

// Whether one round is asked under pure privacy, of one number, or of an ℓ₂ ball with all its signs by squared or ℓ₁ ball by absolute error.
function growsWithTheNorm({ privacy, rounds, loss, sensitivity, dimension, norm }) {
  if (privacy[""] !== "pure-dp" || rounds !== 1n) return false;
  const order = loss === "squared" ? 2 : 1;
  if (dimension === 1n) return true;
  const others = ["linf", "each", "l0", `l${3 - order}`];
  const alone = sensitivity !== null && typeof sensitivity === "object" && others.every((name) => sensitivity[name] === null);
  return alone && (sensitivity.signed || order === 1) && (norm === null || Number(norm) === order);
}

// The class of which the lower bound speaks.
export function spokenOf({ design, mechanism, proofs }) {
  for (const proof of proofs) {
    const kind = proof[""];
    if (kind === "quantizer-dual-bound") {
      if (proof.duals.outputs === null) return sought(design) === MENU ? MENU : EVERY;
      return proof.duals.between ? EVERY : MENU;
    }
    if (kind === "calibration-bound") {
      if (proof.share && ![...SEARCHED_SHAPES, ...DISCRETE].includes(design.noise)) return FAMILY;
      return mechanism.law.name === "staircase" ? INDEPENDENT : LOG_CONCAVE;
    }
    if (["subset-bound", "sampled-subset-bound", "symmetric-bound"].includes(kind)) return INDEPENDENT;
    if (kind === "vector-proof") return EVERY;
  }
  return sought(design);
}

// What the question takes for granted.
const GIVEN = ["the masses and moments stated are those of the prior", "the change is what one record does"];

// Check the class stated, and the status.
export function standing(result, account) {
  const { value, lower_bound: bound, bound_class: stated, asked_gap: asked, design } = result;
  if (bound !== null || stated !== null) {
    const holds = bound !== null && stated === spokenOf(result);
    account.agrees(`the lower bound is of ${stated || "no class that is stated"}`, holds);
  }
  const status = result.solver_report.status;
  const finite = (x) => (typeof x === "bigint" ? true : Number.isFinite(x));
  let holds = finite(value) && (bound === null || (-Infinity < bound && bound <= value));
  let words = "no optimum is claimed";
  if (status === "optimal" || status === "best of its class") {
    words = "value and lower bound are as close as was asked";
    const measured = bound !== null && (typeof asked === "number" || typeof asked === "bigint");
    const gap = () => Math.max(0, double(value) - double(bound)) / Math.max(Math.abs(double(value)), 1e-300);
    holds = holds && measured && gap() <= asked && asked <= 1 && (status === "optimal") === (sought(design) === EVERY);
    // it rests on what is said of the mechanism, the value and the bound, and is checked no better
    const rests = account.rows.filter(({ claim }) => !GIVEN.some((start) => claim.startsWith(start)));
    const weakest = ["claimed", "recomputed"].find((how) => rests.some((row) => row.how === how));
    if (weakest) {
      account.add(`status '${status}': ${words}`, weakest, holds);
      return;
    }
  }
  account.agrees(`status '${status}': ${words}`, holds);
}
