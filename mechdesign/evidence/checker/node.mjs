// Under Node: `node node.mjs result.json`; with --json, the verdicts of the files that are named on its standard input, one a line.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { check } from "./check.mjs";

if (process.argv[2] === "--json") {
  for await (const path of createInterface({ input: process.stdin })) {
    const start = process.cpuUsage();
    const found = check(readFileSync(path, "utf-8"));
    const { user, system } = process.cpuUsage(start);
    console.log(JSON.stringify({ ...found, processor: (user + system) / 1e6 }));
  }
} else {
  const { rows, uncovered, refused, seconds } = check(readFileSync(process.argv[2], "utf-8"));
  for (const { claim, how, holds, margin } of rows ?? [])
    console.log(`${holds ? "ok " : "NO "} ${how.padEnd(10)} ${claim}${margin === null ? "" : ` (margin ${margin.toPrecision(3)})`}`);
  console.log(uncovered ? `not covered: ${uncovered}` : refused ? `error: ${refused}` : `${seconds.toFixed(2)} s`);
  process.exitCode = uncovered ? 2 : refused || rows.some((row) => !row.holds) ? 1 : 0;
}
