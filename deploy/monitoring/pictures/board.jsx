// Panels as Grafana's own components draw them. The page has
// window.board = {title, note, panels, columns, rows, answers, begin, end}.

import React from "react";
import {createRoot} from "react-dom/client";
import {
  createTheme, dateTime, FieldType, getDisplayProcessor, getFieldDisplayName,
  ThresholdsMode, toDataFrame,
} from "@grafana/data";
import {
  BigValue, BigValueColorMode, BigValueGraphMode, BigValueJustifyMode,
  BigValueTextMode, getTheme, LegendDisplayMode, PanelChrome, ThemeContext,
  TimeSeries,
} from "@grafana/ui";
import "uplot/dist/uPlot.min.css";

const {cell} = window.board;
const theme = createTheme({colors: {mode: "light"}});
const {title, note, panels, columns, rows, answers, begin, end} = window.board;
const timeRange = {
  from: dateTime(begin * 1000), to: dateTime(end * 1000),
  raw: {from: dateTime(begin * 1000), to: dateTime(end * 1000)},
};

function legend(format, labels) {
  return format.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? "") ||
    "value";
}

function withDisplay(field) {
  field.display = getDisplayProcessor({field, theme, timeZone: "utc"});
  return field;
}

// One frame for each series of each query.
function frames(panel) {
  const {defaults} = panel.fieldConfig;
  let number = 0;
  return panel.targets.flatMap((target) =>
    answers[panel.id][target.refId].map(({metric, values}) => {
      const color = theme.visualization.palette[
        number++ % theme.visualization.palette.length];
      const frame = toDataFrame({fields: [
        {name: "time", type: FieldType.time, config: {},
          values: values.map(([time]) => time * 1000)},
        {name: "value", type: FieldType.number,
          config: {
            ...defaults,
            displayNameFromDS: legend(target.legendFormat, metric),
            color: {mode: "fixed", fixedColor: color},
            custom: {...defaults.custom, drawStyle: "line",
              axisPlacement: "auto", scaleDistribution: {type: "linear"},
              lineInterpolation: "linear"},
          },
          values: values.map(([, value]) => {
            const number = Number(value);
            return Number.isFinite(number) ? number : null;
          })},
      ]});
      frame.fields.forEach(withDisplay);
      frame.fields[1].state = {seriesIndex: number - 1,
        displayName: frame.fields[1].config.displayNameFromDS};
      return frame;
    }));
}

function Stat({panel, width, height}) {
  const [frame] = frames(panel);
  const field = frame.fields[1];
  const steps = panel.fieldConfig.defaults.thresholds?.steps;
  field.config.color = {mode: "thresholds"};
  field.config.thresholds = {mode: ThresholdsMode.Absolute, steps:
    (steps ?? [{color: "green", value: null}]).map((step) =>
      ({...step, value: step.value ?? -Infinity}))};
  withDisplay(field);
  const numbers = field.values.filter((value) => value !== null);
  return <BigValue theme={theme} width={width} height={height}
    value={field.display(numbers[numbers.length - 1])}
    sparkline={{y: field, x: frame.fields[0], timeRange}}
    colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.Area}
    justifyMode={BigValueJustifyMode.Auto} textMode={BigValueTextMode.Value} />;
}

function Series({panel, width, height}) {
  const drawn = frames(panel);
  drawn.forEach((frame) => frame.fields.forEach((field) =>
    getFieldDisplayName(field, frame, drawn)));
  return <TimeSeries frames={drawn} timeRange={timeRange} timeZone="utc"
    width={width} height={height} structureRev={1}
    legend={{displayMode: LegendDisplayMode.List, placement: "bottom",
      showLegend: true, calcs: []}} />;
}

const kinds = {stat: Stat, timeseries: Series};

function Panel({panel}) {
  const {x, y, w, h} = panel.gridPos;
  const width = w * cell.width - cell.gap;
  const height = h * cell.height - cell.gap;
  const Body = kinds[panel.type];
  return <div style={{position: "absolute", left: x * cell.width,
    top: y * cell.height}}>
    <PanelChrome title={panel.title} width={width} height={height}>
      {(w2, h2) => <Body panel={panel} width={w2} height={h2} />}
    </PanelChrome>
  </div>;
}

function Board() {
  return <ThemeContext.Provider value={theme}>
    <div style={{fontFamily: "Inter, Helvetica, Arial, sans-serif", padding: 8,
      background: theme.colors.background.canvas,
      color: theme.colors.text.primary}}>
      <div style={{fontSize: 18, paddingBottom: 2}}>{title}</div>
      <div style={{fontSize: 12, paddingBottom: 8,
        color: theme.colors.text.secondary}}>{note}</div>
      <div style={{position: "relative", width: columns * cell.width,
        height: rows * cell.height}}>
        {panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
      </div>
    </div>
  </ThemeContext.Provider>;
}

createRoot(document.getElementById("root")).render(<Board />);
