"""The template of the HTML report: one file, styles inside, nothing from the network, no script."""

from __future__ import annotations

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light; }
body { font: 16px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; max-width: 72rem;
  padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; border-bottom: 1px solid #ddd; }
nav { display: flex; flex-wrap: wrap; gap: 0.2rem 0.9rem; }
.wide { overflow-x: auto; }
.wide svg { min-width: 44rem; width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: 0.875rem; }
th, td { text-align: left; padding: 0.25rem 0.6rem; border-bottom: 1px solid #eee; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.case { white-space: nowrap; }
td.sentence { min-width: 20rem; color: #444; }
.MET { color: #00694a; } .MISSED { color: #a33b00; } .WRONG { color: #8c0000; font-weight: bold; }
.UNDECIDED { color: #7a5a00; }
svg .grid { stroke: #e3e3e3; } svg .reference { stroke: #333; stroke-width: 1.2; }
svg .tick { stroke: #000; stroke-width: 2; }
.note { color: #555; font-size: 0.875rem; }
@media (max-width: 40rem) { td.case { white-space: normal; min-width: 9rem; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>{{ counts }}. {{ environment }}.</p>
<nav>{% for section in sections %}<a href="#{{ section.anchor }}">{{ section.title }}</a>{% endfor %}</nav>
{% for section in sections %}
<section id="{{ section.anchor }}">
<h2>{{ section.title }}</h2>
{% if section.note %}<p class="note">{{ section.note }}</p>{% endif %}
{% for picture in section.pictures %}<div class="wide">{{ picture | safe }}</div>{% endfor %}
{% if section.rows %}<div class="wide"><table>
<thead><tr>{% for head in section.head %}
<th{% if loop.index0 in section.numbers %} class="number"{% endif %}>{{ head }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in section.rows %}
<tr>{% for cell in row %}<td class="{{ section.kind(loop.index0, cell) }}">{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>{% endif %}
</section>
{% endfor %}
</body>
</html>
"""
