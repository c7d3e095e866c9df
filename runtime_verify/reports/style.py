"""How the HTML page looks: readable on a phone, in the dark, and on paper."""

STYLE = """\
:root { --back: #ffffff; --text: #1f2328; --soft: #59636e; --line: #d1d9e0; --panel: #f6f8fa;
  --good: #116329; --good-back: #dafbe1; --bad: #a40e26; --bad-back: #ffebe9; --neutral-back: #eaeef2;
  --link: #0550ae; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --soft: #9198a1;
  --line: #30363d; --panel: #161b22; --good: #56d364; --good-back: #12261e; --bad: #ff938a; --bad-back: #25171c;
  --neutral-back: #262c36; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; max-width: 70ch; overflow-wrap: anywhere; }
a { color: var(--link); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
.lead { font-size: 1.05rem; }
.note { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; min-width: 5rem; }
th { background: var(--panel); font-weight: 600; }
dl { margin: 0; }
dd { margin: 0; overflow-wrap: anywhere; }
dt { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .4rem 1.5rem; }
.legend { display: grid; gap: .3rem; }
.legend > div { display: grid; grid-template-columns: 10rem 1fr; }
.badge { display: inline-block; padding: 0 .5rem; border-radius: 1rem; font-size: .85rem; font-weight: 600;
  white-space: nowrap; background: var(--neutral-back); }
.good { color: var(--good); background: var(--good-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.mark { color: var(--soft); font-size: .8rem; border: 1px solid var(--line); border-radius: .3rem; padding: 0 .25rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .9rem 1rem; margin: 0 0 1rem; }
article .scroll { margin-top: .6rem; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: .5rem; }
pre { background: var(--panel); padding: .7rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--link); margin: .5rem 0; }
@media (max-width: 40rem) { .legend > div { grid-template-columns: 1fr; } }
@media print { body { font-size: 10pt; } main { max-width: none; padding: 0; }
  article, figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; } .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; display: block; height: auto; } summary { display: none; }
  .badge, th, pre { print-color-adjust: exact; } }
"""
