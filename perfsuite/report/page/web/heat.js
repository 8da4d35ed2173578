// The heat map: rows are kernels and what they are held against, columns are sizes.
const SIZES = [[512, 'up to 512'], [1024, '1k'], [2048, '2k'], [4096, '4k'], [8192, '8k'], [16384, '16k'], [Infinity, 'above 16k']];
const HEAT_VALUES = { speed: (one) => one.value, share: (one) => one.value };
const sizeOf = (one) => Math.max(0, ...Object.values(one.params).filter((value) => typeof value === 'number' && Number.isInteger(value)));
const bucketOf = (one) => SIZES.findIndex(([most]) => sizeOf(one) <= most);

function makeHeat() {
  const rows = new Map();
  for (const one of cases) {
    const value = HEAT_VALUES[one.kind]?.(one);
    if (!known(value) || value <= 0) continue;
    const name = `${one.op} / ${one.rival}`;
    if (!rows.has(name)) rows.set(name, SIZES.map(() => []));
    rows.get(name)[bucketOf(one)].push(one);
  }
  if (!rows.size) return;
  const head = element('tr', {}, element('th', { scope: 'col' }, 'kernel / against'), SIZES.map(([, text]) => element('th', { scope: 'col' }, text)));
  const body = [...rows].sort(([a], [b]) => a.localeCompare(b)).map(([name, cells]) => element('tr', {}, element('th', { scope: 'row' }, name), cells.map((found, bucket) => heatCell(found, bucket))));
  document.getElementById('heat-table').append(element('table', { class: 'heat' }, element('thead', {}, head), element('tbody', {}, body)));
  document.getElementById('heat').hidden = false;
}

function heatCell(found, bucket) {
  if (!found.length) return element('td');
  const mean = Math.exp(found.reduce((sum, one) => sum + Math.log(one.value), 0) / found.length);
  const bad = found.filter((one) => one.verdict !== 'MET').length;
  // Twice as fast is as blue as half as fast is orange.
  const depth = Math.min(45, Math.round(Math.abs(Math.log2(mean)) * 45));
  const tone = `background: color-mix(in srgb, var(--${mean >= 1 ? 'own' : 'rival'}) ${depth}%, var(--ground))`;
  const said = `${valueOf(found[0].kind, mean)}, ${found.length} ${found.length === 1 ? 'case' : 'cases'}${bad ? `, ${bad} not met` : ''}`;
  const show = () => {
    view.filters = { op: found[0].op, rival: found[0].rival };
    view.size = bucket;
    applyView();
    writeAddress();
    document.getElementById('grid').scrollIntoView();
  };
  return element('td', { style: tone }, element('button', { type: 'button', 'aria-label': said, onclick: show }, `${bad ? '▼ ' : ''}${found[0].kind === 'share' ? valueOf('share', mean) : mean.toFixed(2)} `, element('small', {}, String(found.length))));
}
