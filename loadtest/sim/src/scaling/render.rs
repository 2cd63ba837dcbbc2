//! The study for people.

use std::fmt::Write as _;

use gpulet_core::scaling::SCALERS;

use super::study::{Contest, Study};
use crate::page::{Plot, Series, number, percent};

/// The scaler that is ours, and what is promised of it: device-hours over the oracle's.
const OURS: &str = "attainment";
const PROMISED: f64 = 1.1;

/// Name of a contest's plot.
pub(super) fn file(contest: &Contest) -> String {
    format!("{}-{}.svg", contest.name, seconds(contest.rules.change_us))
}

fn seconds(time_us: u64) -> String {
    format!("{}s", number(time_us as f64 / 1e6))
}

pub(super) fn plot(contest: &Contest) -> Plot {
    let hours = |at: usize, of: usize| (at as f64 + 0.5) / of.max(1) as f64 * contest.seconds / 3_600.0;
    let points = |values: &[f64]| {
        values.iter().enumerate().map(|(at, value)| (hours(at, values.len()), *value)).collect()
    };
    let mut series = vec![Series {
        name: "demand".to_owned(),
        colour: None,
        strong: false,
        points: points(&contest.demand),
    }];
    series.extend(contest.entries.iter().enumerate().map(|(number, entry)| Series {
        name: entry.name.clone(),
        colour: Some(number),
        strong: entry.name == OURS,
        points: points(&entry.outcome.devices),
    }));
    Plot {
        title: format!("{}: devices, a change takes {}", contest.name, seconds(contest.rules.change_us)),
        horizontal: "hours".to_owned(),
        vertical: "devices paid for".to_owned(),
        series,
        ..Plot::default()
    }
}

pub(super) fn markdown(study: &Study, folder: &str, command: &str) -> String {
    let mut page = opening(command);
    page.push_str(&overview(study));
    page.push_str(&agreements(study));
    let mut name = "";
    for contest in &study.contests {
        if contest.name != name {
            name = &contest.name;
            let _ = write!(page, "\n## {name}\n\n{}\n", contest.about);
        }
        page.push_str(&table(contest, folder));
    }
    page
}

fn opening(command: &str) -> String {
    let mut page = format!(
        "<!-- Generated: edit the program, not this page. -->\n# Autoscaling\n\n\
All scalers of `gpulet-core` on the same traffic in virtual time, against one that knows the future. The same program makes\n\
the same page, byte for byte:\n\n```sh\n{command}\n```\n\n\
**The world.** iGniter's twelve workloads (four models, three objectives each) on V100s, with the times of its analytic\n\
model. Traffic is scaled so that it fills ten devices on average. A scaler is told twice a second what came, what waits\n\
and what was lost, and says which rates to plan for. A plan is in force only after the time that a change takes (2 s: beside\n\
the running one; 12 s: new MPS processes), one after the other, and its devices are paid for from the decision on. A plan in\n\
force stays where another would serve no more on no fewer devices. The first five minutes do not count: everybody starts\n\
with capacity for the peak.\n\n\
**What is simpler than it is.** Each model's queue is a fluid, in ticks of 50 ms: a request is lost when it would wait so long\n\
that its batch ends after its objective. A device is cut for each model into shares with the most requests a second that keep\n\
the objective twice over, batches last 1.1 times as long as alone, and what a plan leaves over goes to all in\n\
proportion. That is the same for all, and below is compared with what the default placement needs.\n\n\
**How to read it.** *Attainment* is the part of all requests answered within their objective, *worst* that of the model with the\n\
lowest. *Oracle*: knows every request, and has for each stretch of time as long as a change takes the fewest devices that keep\n\
99 % for each model in that stretch; it pays for changes like everybody. *Bound*: device-hours of whoever knows every request\n\
too, may choose which 1 % of all requests to lose, and rents parts of devices by the second.\n\n\
**What can be had without knowing the future.** Of a jump that nobody foresees, all that exceeds the capacity is lost until a\n\
change has its effect: about three seconds where a change takes two. A rate that doubles every other minute loses over 2 %\n\
of its requests in that time, so keeping 99 % takes head-room that stands there all the time, and the oracle does without.\n\
How much is computed: the *best follower* has for each model a rate made of what came before (averaged over half a second to\n\
two minutes, held for up to two minutes; or the latest, but no less than some part of the highest of ten minutes, of half an\n\
hour, or of the whole trace) times a fixed number, in force after the time of a change. Which rate and which number for\n\
which model, and whose requests to lose, is chosen afterwards, with everything known; and it rents parts of devices by the\n\
second, changes all the time, and pays for no change. That is a lower bound for every scaler that follows in one of these\n\
ways. Where it is itself over the aim, none of them can meet it. A scaler that has to find out which way is right, has whole\n\
devices, and one change at a time, is above it; by how much it has to be is not known.\n\n\
**What ours was tuned on.** Its constants were chosen by five draws of this traffic (seeds 1 to 5; shown is 1), of `twitter`\n\
by the one shown: made-up traffic of other seeds is new to it, recordings are not. Ours takes what was planned for at the\n\
start, here the peak as for everybody, for a rate that may come back within half an hour. Its goal is the attainment of all\n\
requests together: models that are dear to serve lose more than others, which *worst* shows.\n\n## Who takes part\n\n| scaler | what it does |\n|---|---|\n"
    );
    for (name, about) in SCALERS {
        let _ = writeln!(page, "| `{name}` | {about} |");
    }
    page
}

fn overview(study: &Study) -> String {
    let mut page = format!(
        "\n## Overview\n\nAimed at: at least 99 % with no more than {:.0} % above the oracle's device-hours. The cheapest other is that of\n\
those that keep 99 %.\n\n\
| trace | a change takes | `{OURS}` attainment | worst | device-hours | over the oracle | best follower, over the oracle | cheapest other | aim |\n\
|---|--:|--:|--:|--:|--:|--:|---|---|\n",
        100.0 * (PROMISED - 1.0)
    );
    for contest in &study.contests {
        page.push_str(&row(contest).unwrap_or_default());
    }
    page
}

fn row(contest: &Contest) -> Option<String> {
    let (ours, over) = (contest.entry(OURS)?, contest.over_oracle(OURS)?);
    let oracle = contest.entry("oracle")?.device_hours;
    let others = contest.entries.iter().filter(|entry| entry.name != OURS && entry.name != "oracle");
    let keeping = others.filter(|entry| entry.outcome.attainment() >= contest.rules.attainment);
    let cheapest =
        keeping.min_by(|left, right| left.outcome.device_hours.total_cmp(&right.outcome.device_hours));
    let cheapest = cheapest.map_or("none".to_owned(), |entry| {
        format!("`{}`, {}", entry.name, above(entry.outcome.device_hours / oracle))
    });
    let follower = contest.hindsight / oracle;
    let aim = if ours.attainment() >= contest.rules.attainment && over <= PROMISED {
        "met"
    } else if follower > PROMISED {
        "**missed**; no follower can meet it"
    } else {
        "**missed**"
    };
    Some(format!(
        "| [{name}](#{name}) | {} | {} | {} | {:.2} | {} | {} | {cheapest} | {aim} |\n",
        seconds(contest.rules.change_us),
        percent(ours.attainment()),
        percent(ours.worst()),
        ours.device_hours,
        above(over),
        above(follower),
        name = contest.name,
    ))
}

fn above(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

fn agreements(study: &Study) -> String {
    if study.agreements.is_empty() {
        return String::new();
    }
    let mut page = "\n## Devices counted here, and placed\n\nWhat the default placement needs for the same rates, by a plan that the judge finds sound.\n\n\
| mix of models | counted | placed |\n|---|--:|--:|\n"
        .to_owned();
    for agreement in &study.agreements {
        let placed = agreement.placed.map_or("none found".to_owned(), |placed| placed.to_string());
        let _ = writeln!(page, "| {} | {} | {placed} |", agreement.mix, agreement.counted);
    }
    page
}

fn table(contest: &Contest, folder: &str) -> String {
    let change = seconds(contest.rules.change_us);
    let mut page = format!(
        "\nA change takes {change}. Bound: {:.2} device-hours; best follower: {:.2}.\n\n\
| scaler | attainment | worst | device-hours | over the oracle | plan changes | devices at most |\n\
|---|--:|--:|--:|--:|--:|--:|\n",
        contest.bound, contest.hindsight
    );
    let mut entries: Vec<_> = contest.entries.iter().collect();
    entries.sort_by(|left, right| left.outcome.device_hours.total_cmp(&right.outcome.device_hours));
    for entry in entries {
        let outcome = &entry.outcome;
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {:.2} | {} | {} | {} |",
            entry.name,
            percent(outcome.attainment()),
            percent(outcome.worst()),
            outcome.device_hours,
            above(contest.over_oracle(&entry.name).unwrap_or(f64::NAN)),
            number(outcome.changes as f64),
            outcome.devices_max
        );
    }
    let _ = write!(page, "\n![devices over time, a change takes {change}]({folder}/{})\n", file(contest));
    page
}
