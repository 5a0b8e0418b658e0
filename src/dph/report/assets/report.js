// The page's script: charts of pass@k, training and styles, and the browser of completions. All data come from the
// compressed JSON in the page; text reaches the page as textContent only, so that nothing a model wrote is markup. Plotly
// reads a little HTML in every text, so charts get texts by `plain` only.
"use strict";

const NONCE = document.currentScript.nonce;
const $ = (id) => document.getElementById(id);

async function inflated(id) {
  const bytes = Uint8Array.from(atob($(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function fill(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => element("option", { value, textContent: text })));
  if (chosen !== undefined) select.value = chosen;
}

// ---- charts -------------------------------------------------------------------------------------------------------

const DASHES = { "-": "solid", "--": "dash", "-.": "dashdot" };
const SYMBOLS = { o: "circle", s: "square", "^": "triangle-up", D: "diamond", v: "triangle-down", P: "cross", X: "x",
  p: "pentagon" };
const MANY_LINES = 6; // above it, bands would hide the lines

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A text that Plotly shows as it is.
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const SMALL = window.matchMedia("(max-width: 40rem)");

function axis(own) {
  const line = css("--line");
  const title = own.title && { standoff: 10, ...own.title };
  return { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, ...own, ...(title && { title }) };
}

function draw(id, traces, more) {
  const small = SMALL.matches;
  const layout = {
    paper_bgcolor: css("--page"), plot_bgcolor: css("--page"), font: { color: css("--ink"), size: 13 },
    // The bar of buttons has the space above the plot, and a small screen has none: nothing can be dragged there.
    margin: { l: 50, r: 24, t: small ? 12 : 40, b: 44 }, hovermode: "closest", hoverlabel: { namelength: -1 },
    dragmode: small ? false : "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") },
    ...more, xaxis: axis(more.xaxis), yaxis: axis(more.yaxis),
    legend: { traceorder: "normal",
      ...(small ? { orientation: "h", yref: "container", y: 0, yanchor: "bottom" } : { orientation: "v" }) },
  };
  traces.sort((a, b) => Boolean(b.fill) - Boolean(a.fill)); // every band below every line
  Plotly.react(id, traces, layout, { responsive: true, displaylogo: false, displayModeBar: small ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d"] });
}

function lines(label, look, points, name, legend) {
  const traces = [];
  const color = look.linestyle === "--" ? css("--base") : look.color; // the base model's grey depends on the background
  const band = points.low.length > 0;
  if (band && name.bands) {
    traces.push({
      x: [...points.x, ...[...points.x].reverse()], y: [...points.high, ...[...points.low].reverse()], fill: "toself",
      fillcolor: color + "22", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: label,
      mode: "lines",
    });
  }
  const text = points.x.map((_, i) => (band ? ` (${name.show(points.low[i])} to ${name.show(points.high[i])})` : "") +
    (points.over?.[i] ?? ""));
  traces.push({
    x: points.x, y: points.y, text, name: plain(label), legendgroup: label, showlegend: legend, mode: name.mode,
    line: { color, dash: DASHES[look.linestyle], width: 2 },
    marker: { color, symbol: SYMBOLS[look.marker], size: 7 },
    hovertemplate: `${name.x} %{x}: %{y:${name.format}}%{text}<extra>%{fullData.name}</extra>`,
  });
  return traces;
}

const SHARE = { tickformat: ".0%", minallowed: -0.02, maxallowed: 1.02 }; // an axis of values from 0 to 1

function drawPass(data) {
  const curves = Object.entries(data.curves[$("pass-split").value]);
  const show = (value) => (100 * value).toFixed(1) + " %";
  const name = { x: "k =", format: ".1%", show, mode: "lines+markers", bands: curves.length <= MANY_LINES };
  const traces = curves.flatMap(([label, points]) => lines(label, data.looks[label], points, name, true));
  const ks = [...new Set(curves.flatMap(([, points]) => points.x))].sort((a, b) => a - b);
  $("pass-bands").textContent = name.bands ? "Bands are 95 % intervals." :
    `The chart shows no bands, because there are more than ${MANY_LINES} lines: point at a line for its 95 % interval.`;
  draw("pass-chart", traces, {
    xaxis: { type: "log", tickvals: ks, ticktext: ks.map(String), title: { text: "k" } },
    yaxis: { ...SHARE, title: { text: "pass@k" } },
  });
}

function drawTraining(data) {
  const metric = $("training-metric").value;
  const each = $("training-each").checked;
  const runs = data.training.filter((run) => metric in run.metrics);
  const labels = [...new Set(runs.map((run) => run.label))];
  const shown = labels.filter((label) => !(data.training_hidden ?? []).includes(label));
  const show = (value) => value.toPrecision(4);
  const name = { x: "step", format: ".4~g", show, mode: "lines", bands: shown.length <= MANY_LINES };
  const traces = [];
  for (const label of labels) {
    const own = runs.filter((run) => run.label === label);
    const empty = { low: [], high: [] };
    if (each || own.length === 1) {
      own.forEach((run, i) => {
        const points = { x: run.metrics[metric][0], y: run.metrics[metric][1], ...empty };
        const drawn = lines(label, data.looks[label], points, name, i === 0);
        drawn.forEach((trace) => { trace.text = undefined; trace.hovertemplate =
          `step %{x}: %{y:.4~g}<extra>%{fullData.name} ${i + 1}/${own.length}</extra>`; });
        traces.push(...drawn);
      });
      continue;
    }
    const tables = own.map((run) => new Map(run.metrics[metric][0].map((x, i) => [x, run.metrics[metric][1][i]])));
    const steps = [...tables[0].keys()].filter((x) => tables.every((table) => table.has(x)));
    const columns = steps.map((x) => tables.map((table) => table.get(x)));
    traces.push(...lines(label, data.looks[label], {
      x: steps, y: columns.map((found) => found.reduce((a, b) => a + b, 0) / found.length),
      low: columns.map((found) => Math.min(...found)), high: columns.map((found) => Math.max(...found)),
    }, name, true));
  }
  for (const trace of traces) {
    if (!shown.includes(trace.legendgroup)) trace.visible = "legendonly";
  }
  const bounds = metric === "certify/bound" ? runs.map((run) => run.metrics["certify/epsilon"][1].at(-1)) : [];
  const shapes = [...new Set(bounds)].map((y) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { dash: "dash", width: 1 } }));
  const steps = traces.flatMap((trace) => trace.x);
  const few = Math.max(...steps) - Math.min(...steps) <= 10; // then the ticks would be halves of steps
  const share = /(pass@\d+|mean@\d+|maj@\d+|greedy|pass_rate|solved|informative|truncated|unparsed|unscored)$/.test(metric);
  draw("training-chart", traces, {
    xaxis: { title: { text: "training step" }, ...(few && { dtick: 1 }) },
    yaxis: { title: { text: plain(metric) }, ...(share && SHARE) }, shapes });
}

// A long name without its middle: both ends tell methods apart.
function short(name) {
  return name.length > 18 ? `${name.slice(0, 9)}…${name.slice(-8)}` : name;
}

function drawStyles(data) {
  const labels = Object.keys(data.styles);
  const places = labels.map(plain); // of an axis of names; none is a number or a date
  const traces = Object.keys(data.style_colors).map((style) => ({
    type: "bar", orientation: "h", name: plain(style), y: places, x: labels.map((label) => data.styles[label][style] ?? 0),
    marker: { color: data.style_colors[style] }, hovertemplate: `%{y}: %{x:.1%}<extra>%{fullData.name}</extra>`,
  }));
  draw("styles-chart", traces, {
    barmode: "stack", xaxis: { tickformat: ".0%", range: [0, 1], tickvals: [0, 0.25, 0.5, 0.75, 1] },
    yaxis: { autorange: "reversed", type: "category", tickvals: places,
      ticktext: labels.map((label) => plain(SMALL.matches ? short(label) : label)) },
  });
}

// ---- tables -------------------------------------------------------------------------------------------------------

// A table that is wider than its space becomes blocks, one for each row, so that no number is cut.
function fitTables() {
  for (const wide of document.querySelectorAll(".wide")) {
    wide.classList.remove("blocks");
    wide.classList.toggle("blocks", wide.scrollWidth > wide.clientWidth);
  }
}

// ---- completions --------------------------------------------------------------------------------------------------

const FIRST = 6; // completions shown before the others are asked for

function answer([text, outcome, style, count, greedy]) {
  const facts = [style, greedy ? "greedy" : "", count ? `drawn ${count}×` : ""].filter(Boolean);
  const verdict = element("b", { className: outcome, textContent: outcome.replaceAll("_", " ") });
  const head = element("div", {}, verdict, facts.map((fact) => ` · ${fact}`).join(""));
  return element("div", { className: "answer" }, head, element("pre", { textContent: text }));
}

function side(problem, label) {
  const run = problem.runs[label];
  const made = element("div", {}, element("h3", { textContent:
    run ? `${label}: ${run.correct} of ${run.samples} correct` : `${label}: not evaluated here` }));
  if (!run) return made;
  made.append(...run.answers.slice(0, FIRST).map(answer));
  const others = run.answers.slice(FIRST);
  if (others.length) {
    const opens = element("summary", { textContent: `${others.length} other completion${others.length > 1 ? "s" : ""}` });
    made.append(element("details", { className: "more" }, opens, ...others.map(answer)));
  }
  if (run.more) made.append(element("p", { className: "soft", textContent:
    `${run.more} rarer completions are not in this page; completions.parquet of the run has them.` }));
  return made;
}

function completions(data) {
  const state = { listed: [], at: 0 };
  const labels = data.labels.map((label) => [label, label]);
  fill($("left"), labels, data.labels[0]);
  fill($("right"), labels, data.labels[data.labels.length - 1]);
  $("second").hidden = labels.length < 2;
  fill($("browse-split"), Object.keys(data.problems).map((split) => [split, split]));

  function show() {
    const problem = state.listed[state.at];
    $("count").textContent = problem ? `${state.at + 1} of ${state.listed.length}` : "no such problem";
    $("previous").disabled = state.at <= 0;
    $("next").disabled = state.at >= state.listed.length - 1;
    $("prompt").replaceChildren();
    $("sides").replaceChildren();
    if (!problem) return;
    $("problem").value = String(state.at);
    const facts = [problem.kind, problem.answer === null ? "" : `answer: ${problem.answer}`].filter(Boolean).join(" · ");
    $("prompt").append(element("h3", { textContent: problem.id }),
      element("p", { className: "soft", textContent: facts }), element("pre", { textContent: problem.prompt }));
    const shown = labels.length > 1 ? [$("left").value, $("right").value] : [$("left").value];
    $("sides").append(...shown.map((label) => side(problem, label)));
  }

  function rate(problem, label) {
    const run = problem.runs[label];
    return run && run.samples ? run.correct / run.samples : 0;
  }

  function list() {
    const wanted = $("search").value.toLowerCase();
    const [left, right] = [$("left").value, $("right").value];
    state.listed = data.problems[$("browse-split").value].filter((problem) =>
      `${problem.id} ${problem.kind} ${problem.prompt}`.toLowerCase().includes(wanted));
    const gap = (problem) => rate(problem, right) - rate(problem, left);
    if ($("order").value === "right") state.listed.sort((a, b) => gap(b) - gap(a));
    if ($("order").value === "left") state.listed.sort((a, b) => gap(a) - gap(b));
    state.at = 0;
    fill($("problem"), state.listed.map((problem, i) => [String(i), problem.kind ? `${problem.id} (${problem.kind})` : problem.id]));
    show();
  }

  function go(to) {
    state.at = Math.max(0, Math.min(state.listed.length - 1, to));
    show();
  }

  for (const id of ["left", "right", "order", "browse-split"]) $(id).addEventListener("change", list);
  $("search").addEventListener("input", list);
  $("problem").addEventListener("change", () => go(Number($("problem").value)));
  $("previous").addEventListener("click", () => go(state.at - 1));
  $("next").addEventListener("click", () => go(state.at + 1));
  list();
}

// ---- a problem through training -----------------------------------------------------------------------------------

function timelines(data) {
  const runs = data.timelines;
  const chosen = () => runs[Number($("timeline-run").value)];

  function show() {
    const problem = chosen().problems[Number($("timeline-problem").value)];
    $("timeline-prompt").replaceChildren(element("pre", { textContent: problem.prompt }));
    $("timeline").replaceChildren(...problem.spans.map(([first, last, answers]) => element("div", {},
      element("h3", { textContent: first === last ? `step ${first}` : `steps ${first} to ${last}` }),
      ...answers.map(answer))));
  }

  function list() {
    const run = chosen();
    const changes = (count) => (count === 1 ? "1 change" : `${count} changes`);
    fill($("timeline-problem"), run.problems.map((problem, i) => [String(i), `${problem.id} (${changes(problem.changes)})`]));
    $("timeline-part").textContent = run.left_out ? `${run.left_out} more are in the run's folder samples.` : "";
    show();
  }

  fill($("timeline-run"), runs.map((run, i) => [String(i), `${run.label}: ${run.run}`]));
  $("timeline-run").addEventListener("change", list);
  $("timeline-problem").addEventListener("change", show);
  list();
}

// ---- start --------------------------------------------------------------------------------------------------------

async function start() {
  const data = JSON.parse(await inflated("data"));
  completions(data);
  if ($("timeline")) timelines(data);
  const script = element("script", { textContent: await inflated("plotly") });
  script.nonce = NONCE;
  document.head.append(script);
  const charts = [];
  fill($("pass-split"), Object.keys(data.curves).map((split) => [split, split]));
  charts.push(() => drawPass(data));
  if ($("training-chart")) {
    const metrics = [...new Set(data.training.flatMap((run) => Object.keys(run.metrics)))].sort();
    fill($("training-metric"), metrics.map((name) => [name, name]), data.training_metric);
    charts.push(() => drawTraining(data));
    $("training-metric").addEventListener("change", () => drawTraining(data));
    $("training-each").addEventListener("change", () => drawTraining(data));
  }
  if ($("styles-chart")) charts.push(() => drawStyles(data));
  const redraw = () => charts.forEach((chart) => chart());
  $("pass-split").addEventListener("change", () => drawPass(data));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  SMALL.addEventListener("change", redraw);
  redraw();
  fitTables();
  window.addEventListener("resize", fitTables);
  document.body.dataset.ready = "yes";
}

start();
