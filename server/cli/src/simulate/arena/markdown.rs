//! The Markdown page of the arena.

use std::fmt::Write as _;

use charts::{number, percent};
use node::output;
use router_core::batch::Policy;
use sim::Capacity;

use super::burst;
use super::{Contest, base};
use crate::simulate::DEFAULT_POLICY;
use crate::simulate::report::{bound_words, dash, headline, note_line, with_margin};
use crate::simulate::study::Standing;

/// The whole page. Its plots are in `folder` next to it.
pub fn page(contests: &[Contest], seeds: u64, folder: &str) -> String {
    let mut text = format!(
        "<!-- Generated: edit the workloads or the program, not this page. -->\n# Arena\n\n\
         All batching policies on the standard workloads in `loadtest/arena`. The decision code of the server runs in \
         virtual time. The same binary writes the same page, byte for byte:\n\n\
         ```sh\ncargo run --release -- arena --seeds {seeds}\n```\n\n"
    );
    text.push_str(READING);
    text.push_str("## Policies\n\n| policy | what it does |\n|---|---|\n");
    for (name, summary) in Policy::ALL {
        let _ = writeln!(text, "| `{name}` | {summary} |");
    }
    text.push_str(SETTINGS);
    text.push_str("\n## Overview\n\n");
    text.push_str(&overview(contests));
    for contest in contests {
        text.push_str(&section(contest, folder));
    }
    text
}

const READING: &str = "\
**How to read it.** All policies of a workload get identical requests. ± is a 95 % confidence interval over the seeds \
(Student's t).

| column | meaning |
|---|---|
| goodput | answers within the SLO of their model, per second |
| attainment | goodput divided by offered load; refused requests count as offered |
| of the bound | goodput relative to an upper bound for any policy: every lane always busy with batches of the best size \
that the SLO allows, for the requests of this run |
| capacity | highest rate with 99 % attainment, to 1 %; only for workloads with constant traffic |
| burst | recovery from three times the traffic for one second, on top of 90 % of the capacity of `deadline`, and of the \
policy's own. The time from the end of the burst until attainment stays above 99 %, to half a second. *never* is a \
metastable failure: traffic that the policy served before the burst keeps it overloaded |
| ranking | `≈` joins two policies whose goodput does not differ, seed by seed, with 95 % confidence |

";

const SETTINGS: &str = "
Policies run with their published settings and share one cost model, which learns from the profile and from finished batches.

- `triton` runs with three settings: without a queue delay; with a delay of half the SLO minus the time of the largest batch; and
  with each preferred size of 4, 8 and 16 and a delay of half the SLO minus the time of such a batch. A setting is the same for
  all models, so the tightest model decides. Delays of zero are left out.
- `nexus` runs with early drop, and with lazy drop (`drop=lazy`).
";

/// The ranking on each workload as text for a terminal.
pub fn ranking(contests: &[Contest]) -> String {
    let rows = contests.iter().map(|contest| vec![contest.study.workload.name.clone(), order(contest)]);
    output::table(&["workload", "ranking by goodput"], rows)
}

/// Policies from the best on.
fn order(contest: &Contest) -> String {
    let mut text = String::new();
    let mut previous: Option<&Standing> = None;
    for standing in &contest.study.standings {
        if let Some(better) = previous {
            text.push_str(if better.ties(standing) { " ≈ " } else { " > " });
        }
        text.push_str(&standing.label);
        previous = Some(standing);
    }
    text
}

fn overview(contests: &[Contest]) -> String {
    let mut text = format!(
        "| workload | offered/s | bound/s | `{DEFAULT_POLICY}` goodput/s | attainment | of the bound | best other | its goodput/s | verdict |\n\
         |---|--:|--:|--:|--:|--:|---|--:|---|\n"
    );
    for contest in contests {
        let study = &contest.study;
        let Some(ours) = study.standings.iter().find(|standing| standing.label == DEFAULT_POLICY) else {
            continue;
        };
        let other = study.standings.iter().find(|standing| base(&standing.label) != DEFAULT_POLICY);
        let verdict = match other {
            Some(other) if ours.ties(other) => "tie",
            Some(other) if ours.goodput.mean < other.goodput.mean => "**behind**",
            _ => "first",
        };
        let _ = writeln!(
            text,
            "| [{name}](#{name}) | {} | {} | {} | {} | {} | {} | {} | {verdict} |",
            number(study.bound.offered_rate),
            number(study.bound.goodput),
            with_margin(ours.goodput, number),
            with_margin(ours.attainment, percent),
            percent(ours.goodput.mean / study.bound.goodput),
            other.map_or_else(dash, |other| format!("`{}`", other.label)),
            other.map_or_else(dash, |other| with_margin(other.goodput, number)),
            name = study.workload.name,
        );
    }
    text
}

fn section(contest: &Contest, folder: &str) -> String {
    let study = &contest.study;
    let name = &study.workload.name;
    let mut text =
        format!("\n## {name}\n\n{}.\n\n{}.\n", capitalised(&study.workload.about), headline(study));
    let bound = &study.bound;
    let _ = write!(
        text,
        "Offered: {} requests per second. No policy can answer more than {}: {}.",
        number(bound.offered_rate),
        number(bound.goodput),
        bound_words(bound)
    );
    if let (Some(staggered), Some(alone)) = (bound.staggered, bound.uncoordinated) {
        let _ = write!(
            text,
            " With evenly spaced requests, perfectly staggered lanes answer {}, and uncoordinated lanes {}.",
            number(staggered),
            number(alone)
        );
    }
    let _ = write!(text, "\n\n{}\n", table(contest));
    let _ = writeln!(text, "Ranking: {}.\n", order(contest));
    for note in study.notes.iter().map(note_line) {
        let _ = writeln!(text, "Note: {note}.\n");
    }
    let _ = writeln!(text, "![{name}: attainment against offered rate]({folder}/{name}.svg)");
    text
}

fn table(contest: &Contest) -> String {
    let study = &contest.study;
    let burst = !contest.recoveries.is_empty();
    let mut head =
        vec!["policy", "goodput/s", "attainment", "of the bound", "p99 ms", "rows per batch", "lanes busy"];
    if contest.stationary {
        head.push("capacity/s");
    }
    let titles = [format!("burst at {} of ours", share(burst::LOAD)), "burst at own".to_owned()];
    if burst {
        head.extend(titles.iter().map(String::as_str));
    }
    let mut text = format!("| {} |\n|---|{}\n", head.join(" | "), "--:|".repeat(head.len() - 1));
    for (place, standing) in study.standings.iter().enumerate() {
        let mut cells = cells(standing, study.bound.goodput);
        if contest.stationary {
            cells.push(standing.capacity.as_ref().map_or_else(dash, capacity));
        }
        if let Some(recoveries) = contest.recoveries.get(place) {
            cells.extend([recoveries.at_ours.to_string(), recoveries.at_own.to_string()]);
        }
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cells(standing: &Standing, bound: f64) -> Vec<String> {
    let run = standing.first();
    let of = |pick: fn(&sim::Report) -> String| run.map_or_else(dash, pick);
    vec![
        format!("`{}`", standing.label.replace('|', "\\|")),
        with_margin(standing.goodput, number),
        with_margin(standing.attainment, percent),
        percent(standing.goodput.mean / bound),
        of(|run| run.latency_ms.map_or_else(dash, |latency| number(latency.p99))),
        of(|run| number(run.mean_batch)),
        of(|run| percent(run.lane_busy)),
    ]
}

fn capacity(capacity: &Capacity) -> String {
    let unsure = if capacity.settled { "" } else { "?" };
    format!("{}{unsure}", number(capacity.rate))
}

fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
