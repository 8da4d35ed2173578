readAddress();
drawer.addEventListener('close', () => { view.case = ''; writeAddress(); });
drawer.addEventListener('click', (event) => { if (event.target === drawer) drawer.close(); });
document.querySelectorAll('#now .open').forEach((button) => button.addEventListener('click', () => openCase(Number(button.dataset.case))));
addEventListener('hashchange', () => {
  readAddress();
  if (grid) { applyView(); grid.setGroupBy(view.group || false); }
  showAddressedComparison();
  openAddressed();
});
// A link to a part of the page scrolls there, and leaves the view in the address as it is.
document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener('click', (event) => {
  const part = document.querySelector(link.getAttribute('href'));
  event.preventDefault();
  part.setAttribute('tabindex', '-1');
  part.focus({ preventScroll: true });
  part.scrollIntoView();
}));

// Plots are painted in the colours of a scheme, so another scheme paints them again.
function repaint() {
  if (!drawer.open) return;
  const at = drawer.scrollTop;
  showCase(shownCase);
  drawer.scrollTop = at;
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
const scheme = element('select', { id: 'scheme', onchange: () => { document.documentElement.dataset.scheme = scheme.value; repaint(); } },
  [['', "the system's"], ['light', 'light'], ['dark', 'dark']].map(([value, text]) => element('option', { value }, text)));
document.querySelector('nav').append(element('label', {}, 'colours', scheme));

// The plain table waits as text until somebody prints: as elements, its rows would keep the grid waiting.
function layOutPlainTable() {
  const kept = document.querySelector('#table > noscript');
  if (kept) kept.outerHTML = kept.textContent;
}
addEventListener('beforeprint', layOutPlainTable);
matchMedia('print').addEventListener('change', layOutPlainTable);

function makeRest() {
  if (grid) makeHeat();
  makeCompare();
  makeRegressions();
  document.querySelectorAll('nav a[href^="#"]').forEach((link) => { link.hidden = document.querySelector(link.getAttribute('href')).hidden; });
  openAddressed();
  document.body.dataset.page = 'ready';
}
if (typeof Tabulator !== 'undefined') {
  tools();
  makeGrid(makeRest);
} else makeRest();
