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

// A figure with a plot. series: [{ label, values, tone, dash, points, width }]; bands: [[upper, lower]] of series numbers.
function plot({ title, xs, series, xTexts, xLabel, yText, yLabel, logX, logY, height = 230, bands = [], marks = [] }) {
  const figure = element('figure', {}, element('figcaption', {}, title));
  const key = element('ul', { class: 'key' });
  figure.append(key);
  if (typeof uPlot === 'undefined') {
    figure.append(element('p', { class: 'lacking' }, 'The plot needs uPlot, which this page lacks.'));
    return figure;
  }
  const text = resolved('text'), grid = resolved('line');
  const axis = (label, values) => ({
    label, stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, labelSize: 22, values,
  });
  const lines = series.map((one) => {
    const tone = resolved(one.tone);
    if (!one.hidden) key.append(element('li', {}, element('span', { style: `color: var(--${one.tone})` }, one.sign ?? '━'), ` ${one.label}`));
    return {
      label: one.label, stroke: one.points === 'only' ? 'transparent' : tone, dash: one.dash, width: one.width ?? 2, spanGaps: true,
      points: { show: one.points !== false, size: one.size ?? 6, stroke: tone, fill: one.ring ? resolved('ground') : tone },
      value: (_, value) => (value === null || value === undefined ? '-' : yText(value)),
    };
  });
  const options = {
    width: 480, height,
    scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1 } },
    axes: [
      axis(xLabel, (_, at) => at.map((x) => (x === null ? '' : xTexts ? xTexts(x) : String(x)))),
      { ...axis(yLabel, (_, at) => at.map((y) => (y === null ? '' : yText(y)))), size: logY ? 96 : 78 },
    ],
    series: [{ label: xLabel, value: (_, x) => (x === null || x === undefined ? '-' : xTexts ? xTexts(x) : x) }, ...lines],
    bands: bands.map((pair) => ({ series: pair, fill: `color-mix(in srgb, ${resolved('own')} 18%, transparent)` })),
    cursor: { drag: { x: false, y: false } },
    hooks: { draw: [(shown) => marks.forEach(({ x, tone, dash }) => {
      const left = shown.valToPos(x, 'x', true), { ctx, bbox } = shown;
      ctx.save(); ctx.strokeStyle = resolved(tone); ctx.setLineDash(dash ?? []); ctx.lineWidth = 1.5;
      ctx.beginPath(); ctx.moveTo(left, bbox.top); ctx.lineTo(left, bbox.top + bbox.height); ctx.stroke(); ctx.restore();
    })] },
  };
  if (!logX) options.axes[0].incrs = [1, 2, 5, 10, 20, 50, 100];
  const place = element('div');
  figure.append(place);
  const shown = new uPlot(options, [xs, ...series.map((one) => one.values)], place);
  new ResizeObserver(() => {
    const width = Math.floor(figure.clientWidth);
    if (width > 0 && width !== shown.width) shown.setSize({ width, height });
  }).observe(figure);
  return figure;
}
