// What a page asks of its checker, in a worker: the verdict of a text, sealed anew or as it is.

import { NotCovered } from "./errors.mjs";
import { sealed } from "./reading.mjs";
import { verify } from "./verify.mjs";

export function check(text, anew = false) {
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  try {
    return { rows: verify(anew ? sealed(text) : text), seconds: seconds() };
  } catch (error) {
    return { [error instanceof NotCovered ? "uncovered" : "refused"]: error.message, seconds: seconds() };
  }
}
