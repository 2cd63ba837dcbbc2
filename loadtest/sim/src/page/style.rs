//! Style sheets of pages and plots. They follow the reader's light or dark scheme.

/// Colours of series: told apart in both schemes, and from the seventh on by dashes as well, from the thirteenth on by dots.
pub const COLOURS: usize = 14;

/// The style sheet that a plot needs, alone or in a page.
pub const PLOT: &str = "\
:root{--ink:#1b1f24;--soft:#57606a;--grid:#e4e8ec;--paper:#ffffff;--good:#1a7f37;--bad:#b3261e;\
--c0:#0b62c4;--c1:#c8374a;--c2:#1f8f52;--c3:#cc7a00;--c4:#7a48c2;--c5:#0891a8;--c6:#8f5415;--c7:#cf4f9b;\
--c8:#667a00;--c9:#5d6b7c;--c10:#e4572e;--c11:#33339c;--c12:#a0124f;--c13:#00695c}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa5b1;--grid:#2b323a;--paper:#11151a;\
--good:#4cc26b;--bad:#ff7b72;--c0:#5aa9ff;--c1:#ff7b88;--c2:#55cf8a;--c3:#ffb454;--c4:#b794f6;--c5:#4fd0e6;\
--c6:#d1a06a;--c7:#ff8fcb;--c8:#b8cc4e;--c9:#a3b1c2;--c10:#ff9470;--c11:#9d9dff;--c12:#ff6f9f;--c13:#4db6ac}}
svg.plot{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
svg.plot text{fill:var(--soft);paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
svg.plot text.title{fill:var(--ink);font-size:14px;font-weight:600}
svg.plot text.key{fill:var(--ink)}
svg.plot text.inside{fill:var(--paper);font-size:10px;stroke:none}
svg.plot .paper{fill:var(--paper)}
svg.plot .grid{stroke:var(--grid);stroke-width:1}
svg.plot .frame{stroke:var(--soft);stroke-width:1}
svg.plot .mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 3}
svg.plot .line{fill:none;stroke-width:1.6;stroke-linejoin:round}
svg.plot .strong{stroke-width:3}
svg.plot .s0{stroke:var(--c0)}svg.plot .s1{stroke:var(--c1)}svg.plot .s2{stroke:var(--c2)}
svg.plot .s3{stroke:var(--c3)}svg.plot .s4{stroke:var(--c4)}svg.plot .s5{stroke:var(--c5)}
svg.plot .s6{stroke:var(--c6);stroke-dasharray:7 3}svg.plot .s7{stroke:var(--c7);stroke-dasharray:7 3}
svg.plot .s8{stroke:var(--c8);stroke-dasharray:7 3}svg.plot .s9{stroke:var(--c9);stroke-dasharray:7 3}
svg.plot .s10{stroke:var(--c10);stroke-dasharray:7 3}svg.plot .s11{stroke:var(--c11);stroke-dasharray:7 3}
svg.plot .s12{stroke:var(--c12);stroke-dasharray:2 2}svg.plot .s13{stroke:var(--c13);stroke-dasharray:2 2}
svg.plot .plain{stroke:var(--soft);stroke-width:1.2}
svg.plot .f0{fill:var(--c0)}svg.plot .f1{fill:var(--c1)}svg.plot .f2{fill:var(--c2)}svg.plot .f3{fill:var(--c3)}
svg.plot .f4{fill:var(--c4)}svg.plot .f5{fill:var(--c5)}svg.plot .f6{fill:var(--c6)}svg.plot .f7{fill:var(--c7)}
svg.plot .f8{fill:var(--c8)}svg.plot .f9{fill:var(--c9)}svg.plot .f10{fill:var(--c10)}
svg.plot .f11{fill:var(--c11)}svg.plot .f12{fill:var(--c12)}svg.plot .f13{fill:var(--c13)}
";

/// Style sheet of a page, without that of its plots.
pub(crate) const PAGE: &str = "\
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',\
Roboto,'DejaVu Sans',sans-serif}
main{max-width:1060px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px}
h2{font-size:20px;margin:40px 0 8px}
p{margin:8px 0;max-width:78ch}
.soft{color:var(--soft)}
code,pre{font:13px/1.5 ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
pre{padding:10px 14px;border:1px solid var(--grid);border-radius:6px;overflow-x:auto;margin:12px 0}
.verdict{border-left:4px solid var(--c0);padding:4px 0 4px 14px;margin:16px 0;font-size:18px}
.note{border-left:4px solid var(--c3);padding:2px 0 2px 14px}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:10px 0}
th{font-weight:600;color:var(--soft);text-align:right;vertical-align:bottom;padding:6px 8px;\
border-bottom:2px solid var(--grid)}
td{text-align:right;padding:5px 8px;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.good{color:var(--good)}td.bad{color:var(--bad)}
td.strong{font-weight:600}
figure{margin:12px 0 20px}
figure svg{width:100%;height:auto;display:block}
@media (max-width:760px){main{padding:20px 16px 48px}figure{overflow-x:auto}figure svg{min-width:760px}}
figcaption{color:var(--soft);font-size:14px;max-width:78ch}
details{margin:12px 0}summary{cursor:pointer}
footer{margin-top:48px;color:var(--soft);font-size:14px}
";
