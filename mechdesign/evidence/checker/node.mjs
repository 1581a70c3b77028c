// Under Node: `node node.mjs result.json`; with --json, the verdicts of the files that are named on its standard input, one a line.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { NotCovered } from "./errors.mjs";
import { verify } from "./verify.mjs";

function verdict(path) {
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  try {
    return { rows: verify(readFileSync(path, "utf-8")), seconds: seconds() };
  } catch (error) {
    return { [error instanceof NotCovered ? "uncovered" : "refused"]: error.message, seconds: seconds() };
  }
}

if (process.argv[2] === "--json") {
  for await (const path of createInterface({ input: process.stdin })) console.log(JSON.stringify(verdict(path)));
} else {
  const { rows, uncovered, refused, seconds } = verdict(process.argv[2]);
  for (const { claim, how, holds, margin } of rows ?? [])
    console.log(`${holds ? "ok " : "NO "} ${how.padEnd(10)} ${claim}${margin === null ? "" : ` (margin ${margin.toPrecision(3)})`}`);
  console.log(uncovered ? `not covered: ${uncovered}` : refused ? `error: ${refused}` : `${seconds.toFixed(2)} s`);
  process.exitCode = uncovered ? 2 : refused || rows.some((row) => !row.holds) ? 1 : 0;
}
