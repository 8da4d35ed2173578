// The drawer of one case: its figures, its history, its neighbours, its place on the roofline, its samples.
// The data of a page that stands alone are gzipped JSON in base64; those of a site lie beside it.
async function readData(holder) {
  if (holder.dataset.source) return (await fetch(holder.dataset.source)).json();
  const packed = Uint8Array.from(atob(holder.textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}
const page = await readData(document.getElementById('data'));
const runs = page.runs, cases = page.cases;
const drawer = document.getElementById('case');
const commitNode = (run) => {
  const at = runs[run];
  return at.link ? element('a', { href: at.link }, brief(at.commit)) : brief(at.commit);
};
const runText = (run) => `${brief(runs[run]?.commit)}${runs[run]?.date ? `, ${runs[run].date}` : ''}`;

function facts(one) {
  const rows = [
    ['parameters', Object.entries(one.params).map(([name, value]) => `${name} ${value}`).join(', ')],
    ['verdict', `${GLYPHS[one.verdict]} ${one.verdict}: ${one.reason}`],
    ['sentence', one.sentence],
    ['why', one.why],
    ['value', known(one.low) ? `${valueOf(one.kind, one.value)}, interval ${valueOf(one.kind, one.low)} to ${valueOf(one.kind, one.high)}` : valueOf(one.kind, one.value)],
    ['target', known(one.target) ? `${valueOf(one.kind, one.target)}: ${percent(one.toTarget)}` : null],
    ['time', known(one.seconds) ? `${seconds(one.seconds)}${known(one.rivalSeconds) ? `, rival ${seconds(one.rivalSeconds)}` : ''}` : null],
    ['since the base', known(one.change) ? `the time changed by ${percent(one.change)}` : null],
    ['rate', known(one.flopRate) ? `${flopRate(one.flopRate)}, ${byteRate(one.byteRate)}` : null],
    ['measured ceiling', known(one.ceiling) ? flopRate(one.ceiling) : null],
    ['data sheet', known(one.sheetShare) ? `${percent(one.sheetShare, false)} of ${flopRate(one.sheetFlops)}` : null],
    ['error', known(one.error) ? `${digits(one.error)}, rival ${known(one.rivalError) ? digits(one.rivalError) : '-'}, limit ${known(one.errorLimit) ? digits(one.errorLimit) : '-'}` : null],
    ['memory', known(one.peakBytes) ? bytes(one.peakBytes) : null],
    ['launches', known(one.launches) ? String(one.launches) : null],
    ['clock', known(one.hertz) ? `${hertz(one.lowHertz ?? one.hertz)} to ${hertz(one.highHertz ?? one.hertz)}${one.throttled ? `, ${one.throttled}` : ''}` : null],
    ['power', known(one.watts) ? `${one.watts.toFixed(0)} W, ${known(one.celsius) ? `${one.celsius.toFixed(0)} °C` : 'temperature unknown'}` : null],
    ['warnings', one.warnings ? one.warnings.join('; ') : null],
  ].filter(([, value]) => value);
  return element('dl', {}, rows.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
}

function historyPlot(one) {
  const past = one.history;
  if (past.run.length < 2) return null;
  const xs = past.run;
  const empty = xs.map(() => null);
  const series = [
    { label: 'interval, high', values: past.high ?? empty, tone: 'own', points: false, width: 0.5, hidden: true },
    { label: 'interval, low', values: past.low ?? empty, tone: 'own', points: false, width: 0.5, hidden: true },
    { label: one.kind === 'share' ? 'share of the attainable' : one.kind === 'speed' ? `speed against ${one.rival}` : 'value', values: past.value ?? empty, tone: 'own' },
  ];
  if (past.target) series.push({ label: 'target', values: past.target, tone: 'quiet', dash: [6, 4], points: false, sign: '╍' });
  return plot({
    title: 'History', xs, series, xLabel: 'recorded run', yLabel: one.kind === 'share' ? 'share of the attainable' : one.kind === 'speed' ? 'speed' : 'value',
    xTexts: (x) => (runs[x] ? brief(runs[x].commit).slice(0, 7) : ''), yText: (y) => valueOf(one.kind, y), bands: past.high ? [[1, 2]] : [],
    marks: (past.steps ?? []).map(([, after, change]) => ({ x: after, tone: change > 0 ? 'bad' : 'good', dash: [3, 3] })),
  });
}

function timesPlot(one) {
  const past = one.history;
  if (past.run.length < 2 || !past.seconds) return null;
  const series = [{ label: 'candidate', values: past.seconds, tone: 'own' }];
  if (past.rivalSeconds) series.push({ label: one.rival, values: past.rivalSeconds, tone: 'rival', dash: [6, 4], ring: true });
  return plot({
    title: 'Time of a call', xs: past.run, series, xLabel: 'recorded run', yLabel: 'time',
    xTexts: (x) => (runs[x] ? brief(runs[x].commit).slice(0, 7) : ''), yText: seconds,
  });
}

// The steps as sentences: between which two recorded commits the time changed, and what became of a slow-down.
function stepList(one) {
  const steps = one.history.steps ?? [];
  if (!steps.length) return null;
  const at = (run) => one.history.seconds?.[one.history.run.indexOf(run)];
  const outcome = (before, after) => {
    const found = page.regressions.find((group) => group.before === before && group.after === after)?.cases.find(({ id }) => id === one.id);
    return found ? `: ${found.state}${found.reason ? `, ${found.reason}` : ''}` : '';
  };
  return element('ul', { class: 'steps' }, steps.map(([before, after, change]) => element('li', {},
    `${change > 0 ? '▲' : '▼'} ${percent(change)} from ${seconds(at(before))} to ${seconds(at(after))}, between `,
    commitNode(before), ' and ', commitNode(after), outcome(before, after))));
}

// Equal lengths of queries and keys are one parameter.
function shape(one) {
  const params = { ...one.params };
  if (params.seq_q !== undefined && params.seq_q === params.seq_kv) {
    params.tokens = params.seq_q;
    delete params.seq_q; delete params.seq_kv;
  }
  return params;
}
// The cases that differ from this one in a single size; the size with the most cases is the axis.
function family(one) {
  const mine = shape(one);
  const alike = cases.filter((other) => other.op === one.op && other.family === one.family && other.rival === one.rival && known(other.seconds));
  let best = null;
  for (const [name, value] of Object.entries(mine)) {
    if (typeof value !== 'number') continue;
    const rest = (params) => JSON.stringify(Object.entries(params).filter(([key]) => key !== name).sort());
    const wanted = rest(mine);
    const found = alike.filter((other) => { const params = shape(other); return typeof params[name] === 'number' && rest(params) === wanted; });
    const unique = [...new Map(found.map((other) => [shape(other)[name], other])).values()].sort((a, b) => shape(a)[name] - shape(b)[name]);
    if (unique.length > (best?.cases.length ?? 2)) best = { name, cases: unique };
  }
  return best;
}

// What all points of a curve have in common, so that a window or a query length is part of its name.
function held(one, axis) {
  const said = Object.entries(shape(one)).filter(([name, value]) => name !== axis && value !== false)
    .map(([name, value]) => (value === true ? name : `${name} ${value}`));
  return said.length ? `; ${said.join(', ').replaceAll('_', ' ')}` : '';
}

function curve(one) {
  const found = family(one);
  if (!found) return null;
  const xs = found.cases.map((other) => shape(other)[found.name]);
  const series = [{ label: one.op, values: found.cases.map((other) => other.seconds), tone: 'own', many: true }];
  if (found.cases.some((other) => known(other.rivalSeconds))) {
    series.push({ label: one.rival, values: found.cases.map((other) => other.rivalSeconds ?? null), tone: 'rival', dash: [6, 4], ring: true, many: true });
  }
  return plot({
    title: `Time by ${found.name}${held(one, found.name)}`, xs, series, xLabel: found.name, yLabel: 'time', logX: true, logY: true, yText: seconds,
    marks: [{ x: shape(one)[found.name], tone: 'quiet', dash: [2, 3] }],
  });
}

function roofline(one) {
  if (!known(one.flops) || !known(one.bytes)) return null;
  const peers = cases.filter((other) => known(other.flops) && other.family === one.family && other.params.dtype === one.params.dtype)
    .map((other) => ({ other, x: other.flops / other.bytes }))
    .sort((a, b) => a.x - b.x);
  const xs = peers.map(({ x }) => x);
  const column = (read) => peers.map(({ other }) => read(other) ?? null);
  const series = [
    { label: 'data sheet', values: column((other) => other.sheetFlops), tone: 'quiet', points: false, dash: [6, 4], sign: '╍', many: true },
    { label: 'measured ceiling', values: column((other) => other.ceiling), tone: 'third', points: 'only', ring: true, size: 7, sign: '○', many: true },
    { label: `other cases of ${one.family}`, values: column((other) => (other === one ? null : other.flopRate)), tone: 'quiet', points: 'only', size: 4, sign: '·', many: true },
    { label: 'this case', values: column((other) => (other === one ? other.flopRate : null)), tone: 'own', points: 'only', size: 11, sign: '●' },
  ];
  return plot({
    title: 'Roofline', xs, series, xLabel: 'FLOPs a byte', yLabel: 'FLOPs a second', logX: true, logY: true,
    xTexts: (x) => digits(x, 2), yText: (y) => flopRate(y),
  });
}

function samplesPlot(one) {
  const kept = one.samples;
  if (!kept?.own) return null;
  const series = [{ label: 'candidate', values: kept.own, tone: 'own', points: 'only', sign: '●', many: true }];
  if (kept.rival) series.push({ label: one.rival, values: kept.rival, tone: 'rival', points: 'only', ring: true, sign: '○', many: true });
  return plot({ title: 'Samples of this run', xs: kept.own.map((_, index) => index), series, xLabel: 'round', yLabel: 'time', yText: seconds });
}

let shownCase = null;

function showCase(id) {
  const one = cases[id];
  if (!one) return;
  shownCase = id;
  const test = one.test ? (one.link ? element('a', { href: one.link }, one.test) : one.test) : 'no test is recorded';
  drawer.replaceChildren(...[
    element('button', { type: 'button', class: 'close', onclick: () => drawer.close() }, 'Close'),
    element('h2', { id: 'case-title' }, `${one.case} / ${one.rival}`),
    element('p', { class: 'test' }, test),
    one.test ? element('p', {}, element('code', { class: 'command' }, `pytest --gpu '${one.test.replaceAll("'", "'\\''")}'`)) : null,
    stepList(one), facts(one),
  ].filter(Boolean));
  if (!drawer.open) drawer.showModal();
  const plots = element('div', { class: 'plots' });
  drawer.append(plots);
  plots.append(...[historyPlot(one), timesPlot(one), curve(one), roofline(one), samplesPlot(one)].filter(Boolean));
  drawer.scrollTop = 0;
}
