//! `tessera variants vote`: how accurate a vote of models is, and how many of them need to vote for an accuracy.

use std::process::ExitCode;
use std::time::Duration;

use node::catalog;
use node::config::Config;
use node::environment::Environment;
use node::output;
use router_core::voting::{Candidate, Change, Decision, Selection, Voter, decide};
use router_core::{Nanos, millionths};
use serde::Serialize;

use super::answers::Answers;
use super::arguments::VoteArgs;
use super::classifiers::Classifiers;

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    models: Vec<Voted>,
    /// Accuracy of the vote of all models.
    accuracy: f64,
    rows: usize,
    /// Empty without a target.
    intervals: Vec<Interval>,
}

#[derive(Debug, Serialize)]
struct Voted {
    model: String,
    accuracy: f64,
    /// Mean time of a batch of at most 64 rows.
    batch_ms: f64,
}

/// Rows, and the models that voted on them.
#[derive(Debug, PartialEq, Serialize)]
struct Interval {
    rows: usize,
    models: Vec<String>,
    accuracy: f64,
    /// The model that votes from the next interval on.
    joined: Option<String>,
    /// The model that votes no more.
    left: Option<String>,
}

/// A model with its answers to all rows.
struct Member {
    model: String,
    voter: Voter,
    answers: Answers,
}

impl Member {
    fn class(&self, row: usize) -> Option<i64> {
        self.answers.classes.get(row).copied()
    }

    fn batch_time(&self) -> Duration {
        self.answers.time.div_f64(f64::from(self.answers.batches.max(1)))
    }
}

/// Runs the command.
pub fn run(config: &Config, arguments: &VoteArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let classifiers = Classifiers::open(config, &arguments.models, &arguments.labelled, environment)?;
    let mut members = Vec::new();
    for subject in &classifiers.found {
        let name = subject.name.as_str();
        let stored = classifiers.source.quality(name).map_err(anyhow::Error::msg)?;
        let voter = catalog::voter((name, subject.hash), stored).map_err(anyhow::Error::msg)?;
        let answers = classifiers.answers(subject, true)?;
        members.push(Member { model: name.to_owned(), voter, answers });
    }
    let labels = members.first().map(|member| member.answers.labels.as_slice()).unwrap_or_default();
    let all: Vec<&Member> = members.iter().collect();
    let rows = labels.len();
    let right = labels
        .iter()
        .enumerate()
        .filter(|(row, label)| decision(&all, *row).is_some_and(|decision| decision.class == **label));
    let accuracy = |right: usize| right as f64 / rows.max(1) as f64;
    let models = members.iter().map(|member| Voted {
        model: member.model.clone(),
        accuracy: accuracy(
            member.answers.classes.iter().zip(labels).filter(|(class, label)| class == label).count(),
        ),
        batch_ms: member.batch_time().as_secs_f64() * 1e3,
    });
    let intervals = arguments.target.map(|target| {
        let objective = arguments.objective.map_or(Nanos::NEVER, |objective| Nanos::from(objective.0));
        let candidate = |member: &Member| Candidate {
            quality: member.voter.quality,
            latency: Nanos::from(member.batch_time()),
        };
        let candidates = members.iter().map(candidate).collect();
        let selection = Selection::new(candidates, objective, millionths(target));
        intervals(&members, labels, selection, arguments.interval as usize)
    });
    let report = Report {
        models: models.collect(),
        accuracy: accuracy(right.count()),
        rows,
        intervals: intervals.unwrap_or_default(),
    };
    show(&report, arguments);
    Ok(ExitCode::SUCCESS)
}

fn decision(members: &[&Member], row: usize) -> Option<Decision> {
    decide(members.iter().filter_map(|member| Some((&member.voter, member.class(row)?))))
}

/// The models that vote on each interval of rows.
fn intervals(members: &[Member], labels: &[i64], mut selection: Selection, size: usize) -> Vec<Interval> {
    let name = |place: usize| members.get(place).map(|member| member.model.clone()).unwrap_or_default();
    let mut row = 0;
    let interval = |labels: &[i64]| {
        let voting: Vec<usize> = selection.members().collect();
        let of: Vec<&Member> = voting.iter().filter_map(|place| members.get(*place)).collect();
        let mut right = 0;
        for label in labels {
            if let Some(decision) = decision(&of, row) {
                let votes: Vec<i64> = of.iter().filter_map(|member| member.class(row)).collect();
                selection.observe(&votes, decision, *label);
                right += usize::from(decision.class == *label);
            }
            row += 1;
        }
        let (joined, left) = match selection.end_interval() {
            Change::Joined(place) => (Some(name(place)), None),
            Change::Left(place) => (None, Some(name(place))),
            Change::Kept => (None, None),
        };
        let models = voting.into_iter().map(name).collect();
        Interval {
            rows: labels.len(),
            models,
            accuracy: right as f64 / labels.len().max(1) as f64,
            joined,
            left,
        }
    };
    labels.chunks(size.max(1)).map(interval).collect()
}

fn show(report: &Report, arguments: &VoteArgs) {
    if arguments.json {
        if let Ok(text) = serde_json::to_string(report) {
            output::line(&text);
        }
        return;
    }
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let row = |one: &Voted| vec![one.model.clone(), percent(one.accuracy), format!("{:.3}", one.batch_ms)];
    let mut rows: Vec<Vec<String>> = report.models.iter().map(row).collect();
    rows.push(vec!["vote of all".to_owned(), percent(report.accuracy), String::new()]);
    output::write(output::table(&["model", "accuracy", "batch ms"], rows).as_bytes());
    if report.intervals.is_empty() {
        return;
    }
    output::line("");
    let rows = report.intervals.iter().enumerate().map(|(number, one)| {
        let change = match (&one.joined, &one.left) {
            (Some(model), _) => format!("{model} joins"),
            (None, Some(model)) => format!("{model} leaves"),
            (None, None) => String::new(),
        };
        let (number, size) = ((number + 1).to_string(), one.models.len().to_string());
        vec![number, one.rows.to_string(), size, percent(one.accuracy), change]
    });
    let headers = ["interval", "rows", "models", "accuracy", "change"];
    output::write(output::table(&headers, rows.collect::<Vec<_>>()).as_bytes());
    let (mut models, mut right) = (0.0, 0.0);
    for one in &report.intervals {
        models += (one.rows * one.models.len()) as f64;
        right += one.rows as f64 * one.accuracy;
    }
    let rows = report.rows.max(1) as f64;
    output::line(&format!(
        "\n{:.2} models and {} accurate in the mean",
        models / rows,
        percent(right / rows)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(model: &str, quality: u32, classes: &[i64]) -> Member {
        let answers = Answers { classes: classes.to_vec(), batches: 1, ..Answers::default() };
        Member { model: model.to_owned(), voter: Voter { quality, ..Voter::default() }, answers }
    }

    #[test]
    fn a_model_leaves_while_the_others_suffice_and_joins_again() {
        // Two agree on rows 1 to 4 and are right; then both are wrong on half of the rows.
        let members = [
            member("a", 900_000, &[1, 1, 1, 1, 2, 2, 1, 1]),
            member("b", 800_000, &[1, 1, 1, 1, 2, 2, 1, 1]),
            member("c", 700_000, &[1, 1, 1, 0, 1, 1, 1, 1]),
        ];
        let candidate = |member: &Member| Candidate { quality: member.voter.quality, latency: Nanos(0) };
        let selection = Selection::new(members.iter().map(candidate).collect(), Nanos(1), 900_000);
        let shown = intervals(&members, &[1; 8], selection, 4);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!((&shown[0].models, &shown[0].left), (&names(&["a", "b", "c"]), &Some("c".to_owned())));
        assert_eq!((&shown[1].models, &shown[1].joined), (&names(&["a", "b"]), &Some("c".to_owned())));
        assert_eq!((shown[0].accuracy, shown[1].accuracy), (1.0, 0.5));
    }
}
