// Draws dashboards with Grafana's UI library, in headless Chromium.
//
//   node draw.mjs WORK ANSWERS
//
// WORK holds the packages of package.json, installed; ANSWERS is what
// check_live.py --save wrote. The pictures are written beside this script.
// draw.sh does all of it.

import {execFileSync} from "node:child_process";
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";
import {fileURLToPath} from "node:url";

const [work, answersFile] = process.argv.slice(2).map((p) => path.resolve(p));
const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(work, "package.json"));
const esbuild = require("esbuild");

const DRAWN = "Drawn with Grafana's UI library, without its heatmaps and " +
  "tables. ";
const pictures = [
  {name: "service", dashboard: "gemmd-service",
    rows: ["At a glance", "Rate, errors, duration", "Batching and queue",
      "Where time goes"],
    note: DRAWN + "Data: check_live.py's run on two CPU cores, a queue of 16 " +
      "overfilled on purpose; \"Of peak\" is of the stand-in for a GPU."},
  {name: "gpu", dashboard: "gemmd-gpu",
    rows: ["Kernels", "Devices"],
    note: DRAWN + "Data: kernels and copies from check_live.py's run on two " +
      "CPU cores; power, clock, memory and peak from one scrape of an H200, " +
      "its counters grown by 2 % a second."},
];

const COLUMNS = 24;
const CELL = {width: 54, height: 26, gap: 8};
const HEAD = 72;
const DRAWABLE = ["stat", "timeseries"];

// The panels of the wanted rows that Grafana's library can draw, moved up and
// left over the gaps of the others.
function choose(dashboard, wanted) {
  const panels = [];
  let inside = false, x = 0, y = 0, height = 0;
  for (const panel of dashboard.panels) {
    if (panel.type === "row") {
      inside = wanted.includes(panel.title);
      [x, y, height] = [0, y + height, 0];
      continue;
    }
    if (!inside || !DRAWABLE.includes(panel.type)) continue;
    const {w, h} = panel.gridPos;
    if (x + w > COLUMNS) [x, y, height] = [0, y + height, 0];
    panels.push({...panel, gridPos: {x, y, w, h}});
    x += w;
    height = Math.max(height, h);
  }
  return {panels, rows: y + height};
}

const saved = JSON.parse(fs.readFileSync(answersFile, "utf8"));
fs.copyFileSync(path.join(here, "board.jsx"), path.join(work, "board.jsx"));
await esbuild.build({
  entryPoints: [path.join(work, "board.jsx")], bundle: true,
  outfile: path.join(work, "board.js"), minify: true, logLevel: "error",
  define: {"process.env.NODE_ENV": '"production"', global: "window"},
  loader: Object.fromEntries([".svg", ".woff", ".woff2", ".ttf", ".png"]
    .map((kind) => [kind, "dataurl"])),
});

for (const {name, dashboard, rows: wanted, note} of pictures) {
  const json = JSON.parse(fs.readFileSync(
    path.join(here, "../dashboards", `${dashboard}.json`), "utf8"));
  const {panels, rows} = choose(json, wanted);
  const board = {title: json.title, note, panels, rows, columns: COLUMNS,
    cell: CELL, answers: saved.panels[dashboard], begin: saved.begin,
    end: saved.end};
  const page = path.join(work, `${name}.html`);
  fs.writeFileSync(page, `<!doctype html><meta charset="utf-8">
<style>body{margin:0} *{box-sizing:border-box}
h2,h6{margin:0;font-weight:500;font-size:14px}</style><link rel="stylesheet" href="board.css"><div id="root"></div>
<script>window.board = ${JSON.stringify(board).replaceAll("<", "\\u003c")}
</script><script src="board.js"></script>`);
  const picture = path.join(here, `${name}.png`);
  execFileSync("chromium", ["--headless", "--no-sandbox", "--disable-gpu",
    "--hide-scrollbars", "--virtual-time-budget=10000",
    `--user-data-dir=${path.join(work, "profile")}`,
    `--window-size=${COLUMNS * CELL.width + 16},${rows * CELL.height + HEAD}`, `--screenshot=${picture}`,
    `file://${page}`], {stdio: "ignore", timeout: 180000});
  console.log(`${picture}: ${fs.statSync(picture).size} bytes`);
}
