// The view is in the address, so that a link shows what its sender saw.
const slugs = (() => {
  const seen = new Map();
  return cases.map((one) => {
    const name = one.test ?? one.case, count = seen.get(name) ?? 0;
    seen.set(name, count + 1);
    return count ? `${name}@${count}` : name;
  });
})();

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  view.search = asked.get('search') ?? '';
  view.set = asked.get('columns') in SETS ? asked.get('columns') : 'speed';
  view.group = Object.values(GROUPS).includes(asked.get('group') ?? '') ? asked.get('group') ?? '' : '';
  view.sort = asked.get('sort') ?? '';
  view.size = asked.get('size') ?? '';
  view.case = asked.get('case') ?? '';
  view.compare = Object.fromEntries(['kind', 'from', 'to'].map((name) => [name, asked.get(`compare.${name}`) ?? '']));
  view.filters = Object.fromEntries([...asked].filter(([name]) => name.startsWith('only.')).map(([name, value]) => [name.slice(5), value]));
}

function writeAddress() {
  if (reading) return;
  const said = new URLSearchParams();
  if (view.search) said.set('search', view.search);
  if (view.set !== 'speed') said.set('columns', view.set);
  if (view.group) said.set('group', view.group);
  if (view.sort) said.set('sort', view.sort);
  for (const [field, value] of Object.entries(view.filters)) if (value !== '') said.set(`only.${field}`, value);
  if (view.size !== '') said.set('size', view.size);
  if (view.case) said.set('case', view.case);
  for (const [name, value] of Object.entries(view.compare)) if (value) said.set(`compare.${name}`, value);
  const text = said.toString();
  history.replaceState(null, '', text ? `#${text}` : location.pathname + location.search);
}

function openCase(id) {
  view.case = slugs[id];
  writeAddress();
  showCase(id);
}

function openAddressed() {
  const id = view.case ? slugs.indexOf(view.case) : -1;
  if (id >= 0) showCase(id);
}
