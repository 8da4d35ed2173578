readAddress();
drawer.addEventListener('close', () => { view.case = ''; writeAddress(); });
drawer.addEventListener('click', (event) => { if (event.target === drawer) drawer.close(); });
document.querySelectorAll('#now .open').forEach((button) => button.addEventListener('click', () => openCase(Number(button.dataset.case))));
addEventListener('hashchange', () => {
  reading = true;
  readAddress();
  if (grid) { applyView(); showSet(view.set); grid.setGroupBy(view.group || false); }
  reading = false;
  openAddressed();
});
if (typeof Tabulator !== 'undefined') {
  tools();
  makeGrid();
  makeHeat();
}
makeCompare();
makeRegressions();
openAddressed();
