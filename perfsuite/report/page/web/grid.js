// The grid of all cases. It is the filter, the comparison, and the way to each case.
const SETS = {
  speed: ['value', 'interval', 'target', 'toTarget', 'change', 'spark', 'seconds', 'rivalSeconds', 'flopRate'],
  memory: ['peakBytes', 'rivalPeakBytes', 'launches', 'seconds', 'byteRate'],
  accuracy: ['error', 'rivalError', 'errorLimit', 'errorShare'],
  telemetry: ['hertz', 'watts', 'celsius', 'throttled', 'rounds', 'bound', 'clock', 'warnings'],
  shape: [],
};
const GROUPS = { 'no group': '', kernel: 'op', rival: 'rival', verdict: 'verdict', family: 'family', state: 'state' };
const STATE_ORDER = Object.fromEntries(page.states.map((name, index) => [name, index]));
const view = { search: '', set: 'speed', group: '', sort: '', filters: {}, size: '', case: '', compare: {} };
// True while the address changes the view, so that the view does not change the address.
let reading = false;
let grid = null;
const grown = { hozAlign: 'right', headerHozAlign: 'right' };
const number = (title, field, show, more = {}) => ({
  title, field, ...grown, sorter: 'number', sorterParams: { alignEmptyValues: 'bottom' }, responsive: 3,
  formatter: (cell) => show(cell.getValue(), cell.getRow().getData()), ...more,
});

function sparkline(one) {
  const values = one.history.value ?? [];
  const found = values.map((value, index) => [index, value]).filter(([, value]) => known(value));
  if (found.length < 2) return '';
  const all = found.map(([, value]) => value).concat(known(one.target) ? [one.target] : []);
  const low = Math.min(...all), span = Math.max(...all) - low || 1;
  const x = (index) => (3 + (84 * index) / (values.length - 1)).toFixed(1), y = (value) => (17 - (14 * (value - low)) / span).toFixed(1);
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 90 20'); svg.setAttribute('width', '90'); svg.setAttribute('height', '20');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${found.length} runs, from ${valueOf(one.kind, found[0][1])} to ${valueOf(one.kind, found.at(-1)[1])}`);
  const add = (name, attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    svg.append(made);
  };
  if (known(one.target)) add('line', { x1: 3, x2: 87, y1: y(one.target), y2: y(one.target), stroke: 'var(--quiet)', 'stroke-dasharray': '3 3' });
  add('polyline', { points: found.map(([index, value]) => `${x(index)},${y(value)}`).join(' '), fill: 'none', stroke: 'var(--own)', 'stroke-width': 1.5 });
  return svg;
}

// The verdict; a case that is met but got slower says so, since it comes first.
const verdictNode = ({ verdict, state }) => (state === 'regressed'
  ? element('span', { class: 'slower' }, `▲ ${verdict}, slower`) : element('span', { class: verdict }, `${GLYPHS[verdict]} ${verdict}`));

function allColumns() {
  const params = [...new Set(cases.flatMap((one) => Object.keys(one.params)))];
  const field = (name) => `params.${name}`;
  SETS.shape = params.map(field);
  const opener = (cell) => element('button', { type: 'button', class: 'open', onclick: () => openCase(cell.getRow().getData().id) }, cell.getValue());
  const text = { headerFilter: 'input', headerFilterPlaceholder: 'filter', sorter: 'string' };
  return [
    { formatter: 'responsiveCollapse', width: 32, minWidth: 32, headerSort: false, responsive: 0, title: '', titleFormatter: () => element('span', { class: 'unseen' }, 'more of the row') },
    { title: 'case', field: 'case', ...text, formatter: opener, minWidth: 150, widthGrow: 3, responsive: 0 },
    { title: 'kernel', field: 'op', ...text, minWidth: 104, visible: false, responsive: 5 },
    { title: 'rival', field: 'rival', ...text, minWidth: 104, responsive: 4 },
    {
      title: 'verdict', field: 'verdict', ...text, minWidth: 104, responsive: 0, sorter: (a, b, one, two) => STATE_ORDER[one.getData().state] - STATE_ORDER[two.getData().state],
      formatter: (cell) => verdictNode(cell.getRow().getData()),
    },
    number('value', 'value', (value, one) => valueOf(one.kind, value), { responsive: 2, minWidth: 84 }),
    { title: 'interval', field: 'interval', ...grown, headerSort: false, minWidth: 138, responsive: 6 },
    number('target', 'target', (value, one) => valueOf(one.kind, value), { minWidth: 84 }),
    number('to target', 'toTarget', (value) => percent(value), { responsive: 1, minWidth: 80 }),
    number('change', 'change', (value) => percent(value), {
      minWidth: 90, headerTooltip: 'growth of the time since the base', responsive: 2,
    }),
    {
      title: 'history', field: 'spark', headerSort: false, minWidth: 106, responsive: 3,
      formatter: (cell) => sparkline(cell.getRow().getData()),
    },
    number('time', 'seconds', seconds, { responsive: 2, minWidth: 84 }),
    number("rival's time", 'rivalSeconds', seconds, { minWidth: 92, responsive: 5 }),
    number('rate', 'flopRate', flopRate, { minWidth: 122, responsive: 5 }),
    number('memory', 'peakBytes', bytes), number("rival's memory", 'rivalPeakBytes', bytes),
    number('launches', 'launches', (value) => (known(value) ? String(value) : '-')), number('bandwidth', 'byteRate', byteRate),
    number('error', 'error', (value) => (known(value) ? digits(value) : '-')), number("rival's error", 'rivalError', (value) => (known(value) ? digits(value) : '-')),
    number('limit', 'errorLimit', (value) => (known(value) ? digits(value) : '-')), number('of limit', 'errorShare', (value) => percent(value, false)),
    number('clock', 'hertz', hertz), number('power', 'watts', (value) => (known(value) ? `${value.toFixed(0)} W` : '-')),
    number('temperature', 'celsius', (value) => (known(value) ? `${value.toFixed(0)} °C` : '-')), { title: 'throttled', field: 'throttled', ...text, responsive: 4 },
    number('rounds', 'rounds', (value) => (known(value) ? String(value) : '-')), { title: 'bound', field: 'bound', ...text, responsive: 4 },
    { title: 'timer', field: 'clock', ...text, responsive: 5 }, { title: 'warnings', field: 'warnings', ...text, responsive: 6, minWidth: 160 },
    ...params.map((name) => ({ title: name.replaceAll('_', ' '), field: field(name), headerFilter: 'input', headerFilterPlaceholder: 'filter', minWidth: 84, responsive: 3, formatter: (cell) => String(cell.getValue() ?? '-') })),
  ];
}

// The columns of the chosen set, and those that a filter or the order needs; a column that is not there costs nothing.
function columns() {
  const inSets = new Set(Object.values(SETS).flat()), needed = [...Object.keys(view.filters), ...sorters().map(({ column }) => column)];
  return definitions.filter(({ field }) => !field || !inSets.has(field) || SETS[view.set].includes(field) || needed.includes(field))
    .map((column) => ({ ...column, visible: column.visible !== false || needed.includes(column.field) }));
}
const definitions = allColumns();
const sorters = () => view.sort.split(',').filter(Boolean).map((text) => text.split(':'))
  .filter(([field]) => definitions.some((one) => one.field === field))
  .map(([column, dir]) => ({ column, dir: dir === 'desc' ? 'desc' : 'asc' }));

// What the search looks into: all words must occur in one of a case's names.
const searched = new Map(cases.map((one) => [one.id, `${one.case} ${one.rival} ${one.test ?? ''} ${one.verdict} ${one.state} ${one.sentence}`.toLowerCase()]));
const matches = (one) => (view.size === '' || bucketOf(one) === Number(view.size)) && view.search.toLowerCase().split(/\s+/).every((word) => searched.get(one.id).includes(word));

// painted: called once the first rows are on the screen.
function makeGrid(painted) {
  // Tabulator writes into the rows that it is given, also into `params`.
  const rows = cases.map((one) => ({
    ...one, params: { ...one.params }, spark: 0,
    interval: known(one.low) ? `${valueOf(one.kind, one.low).replace(' x', '')} to ${valueOf(one.kind, one.high)}` : '-',
    errorShare: known(one.error) && one.errorLimit ? one.error / one.errorLimit : null,
  }));
  rows.sort((a, b) => STATE_ORDER[a.state] - STATE_ORDER[b.state] || (a.toTarget ?? 9) - (b.toTarget ?? 9));
  const place = element('div', { id: 'live' });
  document.getElementById('table').append(place);
  document.body.classList.add('has-grid');
  grid = new Tabulator(place, {
    data: rows, columns: columns(), layout: 'fitColumns', responsiveLayout: 'collapse', responsiveLayoutCollapseStartOpen: false,
    height: rows.length > 25 ? 'min(75vh, 60rem)' : false, groupBy: view.group || false, placeholder: 'No case matches.',
    columnDefaults: { headerSortTristate: true, headerWordWrap: true, tooltip: true }, keybindings: false,
  });
  grid.on('tableBuilt', () => {
    // Only rows and groups of rows may be children of a grid; the part that scrolls is a group of rows.
    place.querySelector('.tabulator-tableholder').setAttribute('role', 'rowgroup');
    place.querySelector('.tabulator-table').setAttribute('role', 'presentation');
    if (location.hash) applyView();
    // From here on the user changes the view; before, the address did.
    grid.on('dataSorted', (found) => {
      if (reading) return;
      view.sort = found.map(({ field, dir }) => `${field}:${dir}`).join(',');
      writeAddress();
    });
    grid.on('dataFiltering', () => {
      if (reading) return;
      view.filters = Object.fromEntries(grid.getHeaderFilters().map(({ field, value }) => [field, value]));
      writeAddress();
    });
    // The first frame with rows has been painted when this runs.
    requestAnimationFrame(() => setTimeout(() => { performance.mark('grid'); painted(); }));
  });
  grid.on('dataFiltered', (_, found) => { const count = document.getElementById('count'); if (count) count.textContent = `${found.length} of ${cases.length} cases`; });
}

function tools() {
  const place = document.getElementById('tools');
  const options = (names) => Object.entries(names).map(([text, value]) => element('option', { value }, text));
  const search = element('input', { type: 'search', id: 'search', placeholder: 'words of a case, test or verdict', 'aria-label': 'search', oninput: () => { view.search = search.value; grid.setFilter(matches); writeAddress(); } });
  const set = element('select', { id: 'set', onchange: () => { view.set = set.value; applyView(); writeAddress(); } }, options(Object.fromEntries(Object.keys(SETS).map((name) => [name, name]))));
  const group = element('select', { id: 'group', onchange: () => { view.group = group.value; grid.setGroupBy(view.group || false); writeAddress(); } }, options(GROUPS));
  const clear = () => {
    Object.assign(view, { filters: {}, search: '', size: '' });
    applyView();
    writeAddress();
  };
  place.append(
    search, element('label', {}, 'columns', set), element('label', {}, 'group by', group),
    element('button', { type: 'button', onclick: clear }, 'Clear filters'),
    element('span', { id: 'count', role: 'status' }, `${cases.length} cases`),
  );
  place.hidden = false;
}

// Brings controls and grid to the view.
function applyView() {
  document.getElementById('search').value = view.search;
  document.getElementById('set').value = view.set;
  document.getElementById('group').value = view.group;
  reading = true;
  grid.clearHeaderFilter();  // setColumns alone would keep the filters of columns that go
  grid.setColumns(columns());
  for (const [field, value] of Object.entries(view.filters)) grid.setHeaderFilterValue(field, value);
  grid.setFilter(matches);
  if (sorters().length) grid.setSort(sorters());
  reading = false;
}
