// Numbers as text. "-" stands for what is not known.
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const digits = (value, count = 3) => {
  const text = value.toPrecision(count);
  return text.includes('e') ? String(Number(text)) : text;
};
const UNITS = [[1, 's'], [1e-3, 'ms'], [1e-6, 'us'], [1e-9, 'ns']];
function seconds(value) {
  if (!known(value)) return '-';
  const [size, unit] = UNITS.find(([least]) => value >= least) ?? UNITS[3];
  return `${digits(value / size)} ${unit}`;
}
const percent = (value, sign = true) =>
  known(value) ? `${sign && value >= 0 ? '+' : ''}${(100 * value).toFixed(1)} %` : '-';
function scaled(value, steps, count = 4) {
  if (!known(value)) return '-';
  const [size, unit] = steps.find(([least]) => value >= least) ?? steps[steps.length - 1];
  return `${digits(value / size, count)} ${unit}`;
}
const bytes = (value) => scaled(value, [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']], 3);
const flopRate = (value) => scaled(value, [[1e12, 'TFLOPS'], [1e9, 'GFLOPS'], [1, 'FLOPS']]);
const byteRate = (value) => scaled(value, [[1e12, 'TB/s'], [1e9, 'GB/s'], [1, 'B/s']]);
const hertz = (value) => (known(value) ? `${(value / 1e9).toFixed(2)} GHz` : '-');
function valueOf(kind, value) {
  if (!known(value)) return '-';
  if (kind === 'share') return `${(100 * value).toFixed(1)} %`;
  return kind === 'speed' ? `${value < 10 ? value.toFixed(3) : value.toFixed(1)} x` : digits(value, 4);
}
// A glyph beside each verdict, so that colour is never the only sign.
const GLYPHS = { MET: '✓', MISSED: '▼', WRONG: '✗', UNDECIDED: '?' };
const brief = (commit) => (commit ? commit.slice(0, 9) : 'unknown');

// An element with attributes and children. Text goes in as text, never as markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}
