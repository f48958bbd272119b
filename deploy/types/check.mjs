// Checks dashboards and Kubernetes manifests against their published types, so
// that a misspelt, misplaced or mistyped field is an error.
//
//   node check.mjs WORK [FILE...]
//
// WORK holds the packages of package.json, installed. FILE: a dashboard (.json)
// or a stream of manifests (.yaml). Writes one TypeScript file for each object
// and lets tsc, strict, judge all of them.

import {execFileSync} from "node:child_process";
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";

const [work, ...files] = process.argv.slice(2);
const require = createRequire(path.resolve(work, "package.json"));
const YAML = require("yaml");
const generated = path.join(work, "generated");
fs.rmSync(generated, {recursive: true, force: true});
fs.mkdirSync(generated, {recursive: true});

// Where a kind that is not Kubernetes' own has its types, by API group.
const packages = {
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
  "keda.sh": "@kubernetes-models/keda",
};
// The options of a panel type.
const panelOptions = Object.fromEntries(
  ["heatmap", "stat", "table", "timeseries"].map((kind) => {
    const folder = path.join(work,
      "node_modules/@grafana/schema/dist/esm/raw/composable", kind,
      "panelcfg/x");
    const file = fs.readdirSync(folder)
      .find((name) => name.endsWith("PanelCfg_types.gen.d.ts"));
    return [kind, path.resolve(folder, file.replace(/\.d\.ts$/, ""))];
  }));

let count = 0;
function emit(name, text) {
  const file = `${String(++count).padStart(3, "0")}_` +
    `${name.replace(/\W+/g, "_")}.ts`;
  fs.writeFileSync(path.join(generated, file), text);
}

function emitDashboard(file) {
  const board = JSON.parse(fs.readFileSync(file, "utf8"));
  const lines = ['import type {Dashboard} from "@grafana/schema";',
    // In JSON an enumerator is its text.
    "type Json<T> = T extends string ? `${T}` : T extends object",
    "  ? {[key in keyof T]: Json<T[key]>} : T;",
    `export const dashboard: Json<Dashboard> = ${JSON.stringify(board, null, 1)};`];
  for (const panel of board.panels) {
    if (panel.type === "row") continue;
    if (!panelOptions[panel.type]) {
      throw new Error(`${file}: ${panel.title}: no types of ${panel.type}`);
    }
    lines.push(`import type {Options as Options${panel.id}} from ` +
      `"${panelOptions[panel.type]}";`,
    `export const panel${panel.id}: Partial<Json<Options${panel.id}>> = ` +
      `${JSON.stringify(panel.options)};`);
  }
  emit(path.basename(file), lines.join("\n"));
}

function emitManifests(file) {
  for (const document of YAML.parseAllDocuments(fs.readFileSync(file, "utf8"))) {
    if (document.errors.length > 0) throw document.errors[0];
    const object = document.toJS();
    if (object === null) continue;
    const {apiVersion, kind} = object;
    const group = apiVersion.includes("/") ? apiVersion.split("/")[0] : "";
    const source = `${packages[group] ?? "kubernetes-models"}/` +
      `${apiVersion}/${kind}`;
    emit(`${path.basename(file, ".yaml")} ${kind} ${object.metadata.name}`,
      `import type {I${kind}} from "${source}";\n` +
      `export const object: I${kind} = ${JSON.stringify(object, null, 1)};\n`);
  }
}

for (const file of files) {
  (file.endsWith(".json") ? emitDashboard : emitManifests)(file);
}
if (count === 0) throw new Error("nothing to check");
fs.writeFileSync(path.join(work, "tsconfig.json"), JSON.stringify({
  compilerOptions: {
    strict: true, noEmit: true, skipLibCheck: true, module: "esnext",
    moduleResolution: "bundler", target: "es2022", types: []},
  include: ["generated/*.ts"],
}));
try {
  execFileSync(path.join(work, "node_modules/.bin/tsc"), ["-p", work],
    {stdio: ["ignore", "inherit", "inherit"]});
} catch {
  process.exit(1);
}
console.log(`${count} objects have the fields of their types`);
