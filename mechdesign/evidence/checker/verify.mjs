// Check a result file: every claim is proved (exact or outward-rounded arithmetic), recomputed (within what doubles lose) or
// claimed (not checked here). The same checks as those of mechdesign.verifier, which are written in Python.

import { standing } from "./bound_class.mjs";
import { calibration } from "./calibration.mjs";
import { channel } from "./channel.mjs";
import { NotCovered, Refused } from "./errors.mjs";
import { knorm } from "./knorm.mjs";
import { latticeNoise } from "./lattice_noise.mjs";
import { localReport } from "./local_report.mjs";
import { quantizer } from "./quantizer.mjs";
import { Account, isObject, optional, read } from "./reading.mjs";

const CHECKS = { calibration, knorm, "local-workload": localReport, "metric-channel": channel, "optimal-noise": latticeNoise };
for (const name of ["metric-quantizer", "optimal-quantizer", "optm", "optm-search", "rqm", "erm", "mvu"]) CHECKS[name] = quantizer;

// The claims of a file; throws NotCovered, or Refused for what cannot be a result.
export function verify(text) {
  try {
    return checked(read(text), new Account(text.length)).rows;
  } catch (error) {
    if (error instanceof NotCovered || error instanceof Refused) throw error;
    throw new Refused(`malformed: ${error.name}: ${error.message}`.slice(0, 300));
  }
}

function checked(result, account) {
  if (!isObject(result)) throw new NotCovered("a file that states no mechanism");
  const of = result[""] === "result";
  if (of && !isObject(result.design)) throw new Refused("a design that is none");
  const kind = of ? result.design[""] : result[""];
  if (!Object.hasOwn(CHECKS, kind)) throw new NotCovered(`results of kind ${kind}`);
  if (!of) throw new Refused(`a design (${kind}) without a result: nothing is claimed that could be checked`);
  if (![result.mechanism, ...result.proofs].every(isObject)) throw new Refused("a mechanism or a proof that is none");
  account.agrees("a proof is there", result.proofs.length > 0);
  if (result.proofs.length) CHECKS[kind](result, account);
  for (const bounds of ["sensitivity", "bounds"].map((name) => optional(result.design, name, null)))
    if (isObject(bounds)) account.claimed(`the change is what one record does (${bounds.neighbours}), as stated`);
  standing(result, account);
  return account;
}
