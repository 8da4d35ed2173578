// Plots by uPlot. Every plot has a caption with its unit, named axes, and a key beside it.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// light-dark() is resolved by the browser only where it is used as a colour.
function resolved(name) {
  const probe = element('span', { style: `color: var(--${name})` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// On a logarithmic axis: only powers of ten, or 1, 2 and 5 where those are few.
function roundOnly(splits) {
  const lead = (value) => Number(value.toExponential(6).split('e')[0]);
  const tens = splits.filter((value) => lead(value) === 1).length;
  return splits.map((value) => ((tens > 2 ? [1] : [1, 2, 5]).includes(lead(value)) ? value : null));
}
const MOST_NUMBERS = 50;

// A figure with a plot. series: [{ label, values, tone, dash, points, width }]; bands: [[upper, lower]] of series numbers.
function plot({ title, xs, series, xTexts, xLabel, yText, yLabel, logX, logY, height = 230, bands = [], marks = [] }) {
  const figure = element('figure', {}, element('figcaption', {}, title));
  const xText = (x) => (x === null || x === undefined ? '' : xTexts ? xTexts(x) : String(x));
  const shownSeries = series.filter((one) => !one.hidden && one.values.some(known));
  // The key names each series and shows its value: the last one, or the one below the pointer.
  const place = element('span');
  const values = shownSeries.map(() => element('b'));
  const key = element('ul', { class: 'key' }, shownSeries.map((one, index) => element('li', {},
    element('span', { style: `color: var(--${one.tone})`, 'aria-hidden': 'true' }, one.sign ?? '━'), ` ${one.label} `, values[index])),
  element('li', {}, place));
  const say = (at) => {
    const last = at === null || at === undefined;
    place.textContent = last ? '' : `at ${xLabel} ${xText(xs[at])}`;
    shownSeries.forEach((one, index) => {
      const value = last ? (one.many ? null : one.values.findLast(known)) : one.values[at];
      values[index].textContent = known(value) ? yText(value) : '';
    });
  };
  say(null);
  figure.append(key);
  if (typeof uPlot === 'undefined') {
    figure.append(element('p', { class: 'lacking' }, 'The plot needs uPlot, which this page lacks.'), numbers());
    return figure;
  }
  const text = resolved('text'), grid = resolved('line');
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = (label, log, values) => ({
    label, stroke: text, grid: { stroke: grid, width: 1, ...(log && { filter: (_, splits) => roundOnly(splits) }) }, labelSize: 22, values,
    font, labelFont: font, ticks: { stroke: grid, ...(log && { filter: (_, splits) => roundOnly(splits) }) },
    ...(log && { filter: (_, splits) => roundOnly(splits) }),
  });
  const lines = series.map((one) => {
    const tone = resolved(one.tone);
    return {
      label: one.label, stroke: one.points === 'only' ? 'transparent' : tone, dash: one.dash, width: one.width ?? 2, spanGaps: true,
      points: { show: one.points !== false, size: one.size ?? 6, stroke: tone, fill: one.ring ? resolved('ground') : tone },
    };
  });
  const options = {
    width: 480, height, padding: [null, 28, null, null], legend: { show: false },
    scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1 } },
    axes: [
      axis(xLabel, logX, (_, at) => at.map(xText)),
      { ...axis(yLabel, logY, (_, at) => at.map((y) => (y === null ? '' : yText(y)))), size: logY ? 96 : 78 },
    ],
    series: [{ label: xLabel }, ...lines],
    bands: bands.map((pair) => ({ series: pair, fill: `color-mix(in srgb, ${resolved('own')} 18%, transparent)` })),
    cursor: { drag: { x: false, y: false } },
    hooks: {
      setCursor: [({ cursor }) => say(cursor.idx)],
      draw: [(shown) => marks.forEach(({ x, tone, dash }) => {
        const left = shown.valToPos(x, 'x', true), { ctx, bbox } = shown;
        ctx.save(); ctx.strokeStyle = resolved(tone); ctx.setLineDash(dash ?? []); ctx.lineWidth = 1.5;
        ctx.beginPath(); ctx.moveTo(left, bbox.top); ctx.lineTo(left, bbox.top + bbox.height); ctx.stroke(); ctx.restore();
      })],
    },
  };
  if (!logX) Object.assign(options.axes[0], { incrs: [1, 2, 5, 10, 20, 50, 100], ...(xTexts && { space: 72 }) });
  const drawn = element('div', { role: 'img', 'aria-label': title });
  figure.append(drawn, numbers());
  const shown = new uPlot(options, [xs, ...series.map((one) => one.values)], drawn);
  new ResizeObserver(() => {
    const width = Math.floor(figure.clientWidth);
    if (width > 0 && width !== shown.width) shown.setSize({ width, height });
  }).observe(figure);
  return figure;

  // The same as a table, for who cannot see the plot or wants to copy it.
  function numbers() {
    const columns = series.filter((one) => one.values.some(known));
    if (xs.length > MOST_NUMBERS) return '';
    return element('details', {}, element('summary', {}, 'Numbers'), element('div', { class: 'scroll' }, element('table', { class: 'list' },
      element('thead', {}, element('tr', {}, [xLabel, ...columns.map((one) => one.label)].map((name) => element('th', { scope: 'col' }, name)))),
      element('tbody', {}, xs.map((x, row) => element('tr', {}, element('th', { scope: 'row' }, xText(x)),
        columns.map((one) => element('td', {}, known(one.values[row]) ? yText(one.values[row]) : '-'))))))));
  }
}
