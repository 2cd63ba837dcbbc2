//! What a run found out: as text, JSON, a picture and a page.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use charts::{Plot, document, escape, figure, number, paragraph, plain, table};
use models::TimeSpan;
use node::output;
use serde::Serialize;
use tuning::{Configuration, Measured, Measurement, Objective, Space};

use super::arguments::TuneArgs;
use super::confirmation::{Confirmation, Confirmed};
use super::path::{Step, plot};
use super::settings::{About, sections};
use crate::profile::machine::Machine;
use crate::profile::subjects::Subject;

/// Trials that the text lists.
const SHOWN: usize = 5;

/// Why no more was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stopped {
    Exhausted,
    NoGain { expected: f64 },
    Budget,
    Time,
    Interrupted,
}

impl Stopped {
    fn word(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::NoGain { .. } => "no_gain",
            Self::Budget => "budget",
            Self::Time => "time",
            Self::Interrupted => "interrupted",
        }
    }

    fn text(self) -> String {
        match self {
            Self::Exhausted => "every configuration was tried".to_owned(),
            Self::NoGain { expected } => {
                format!("no other trial is expected to gain more than {:.2} %", 100.0 * expected)
            }
            Self::Budget => "the --budget is used".to_owned(),
            Self::Time => "the time of --within is over".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// Everything about a run.
pub struct Report<'a> {
    pub subject: &'a Subject,
    pub space: &'a Space,
    pub measured: &'a Measured,
    pub objective: Objective,
    pub slo: TimeSpan,
    pub search: &'a str,
    pub seed: u64,
    /// Trials of the search in this run, and those that the file had.
    pub trials: usize,
    pub known: usize,
    /// Time of the search, and with the comparison.
    pub seconds: f64,
    pub seconds_in_all: f64,
    pub stopped: Stopped,
    pub confirmation: Confirmation,
    pub notes: Vec<String>,
    pub batched: bool,
    pub machine: &'a Machine,
    /// Text of the configuration file.
    pub file: Option<&'a str>,
}

#[derive(Serialize)]
struct Shown {
    engine: &'static str,
    lanes: u32,
    threads: u32,
    graph_level: &'static str,
    spinning: bool,
    batch: u32,
    p99_us: f64,
    rows_per_s: f64,
}

impl Shown {
    fn new(configuration: Configuration, measurement: Measurement) -> Self {
        let Configuration { setup, batch } = configuration;
        Self {
            engine: setup.engine.as_str(),
            lanes: setup.lanes,
            threads: setup.threads,
            graph_level: setup.level.as_str(),
            spinning: setup.spinning,
            batch,
            p99_us: measurement.p99_us,
            rows_per_s: measurement.rows_per_s,
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    machine: &'a str,
    slo_ms: f64,
    search: &'a str,
    seed: u64,
    configurations: usize,
    trials: usize,
    known: usize,
    extra_trials: usize,
    seconds: f64,
    seconds_in_all: f64,
    stopped: &'static str,
    why: String,
    best: Option<Shown>,
    default: Option<Shown>,
    gain: Option<f64>,
    gain_is_clear: bool,
    noise: Option<f64>,
    settings: Option<String>,
    notes: &'a [String],
    path: Vec<Shown>,
}

impl Report<'_> {
    /// The best configuration, if it was confirmed.
    pub fn winner(&self) -> Option<Confirmed> {
        self.confirmation.winner
    }

    /// Prints the result, and writes the files.
    pub fn deliver(&self, arguments: &TuneArgs) -> anyhow::Result<()> {
        let settings = self.settings()?;
        if let (Some(path), Some(text)) = (&arguments.out, &settings) {
            write(path, text)?;
        }
        if let Some(path) = &arguments.svg {
            write(path, &charts::file(&self.picture()))?;
        }
        if let Some(path) = &arguments.report {
            write(path, &self.page(settings.as_deref()))?;
        }
        if arguments.json {
            output::line(&serde_json::to_string(&self.answer(settings))?);
            return Ok(());
        }
        let mut text = self.text();
        match (&arguments.out, settings) {
            (None, Some(settings)) => {
                let _ = write!(text, "\n{settings}");
            }
            (Some(path), Some(_)) => {
                let _ = writeln!(text, "written: {}", path.display());
            }
            (_, None) => {}
        }
        output::write(text.as_bytes());
        Ok(())
    }

    fn settings(&self) -> anyhow::Result<Option<String>> {
        let Some(winner) = self.winner() else { return Ok(None) };
        let cores = self.machine.units();
        let about = About {
            model: self.subject.name.as_str(),
            slo: self.slo,
            cores,
            batched: self.batched,
            file: self.file,
        };
        let head = format!(
            "# `tessera tune`: model `{}` serves {} rows/s within {} on {cores} cores.\n",
            self.subject.name,
            number(winner.measurement.rows_per_s),
            self.slo
        );
        Ok(Some(head + &sections(winner.configuration, &about)?))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let rows = self.top().map(|(configuration, one)| {
            let Configuration { setup, batch } = configuration;
            vec![
                setup.to_string(),
                batch.to_string(),
                format!("{:.2}", one.p99_us / 1e3),
                number(one.rows_per_s),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if !rows.is_empty() {
            text.push_str(&output::table(&["best trials", "batch", "p99 ms", "rows/s"], rows));
            text.push('\n');
        }
        for line in self.lines() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Sentences about the result.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let shown = |confirmed: &Confirmed| {
            format!("{} rows/s: {}", number(confirmed.measurement.rows_per_s), confirmed.configuration)
        };
        match self.winner() {
            Some(winner) => {
                lines.push(format!("{} within {}: {}", self.subject.name, self.slo, shown(&winner)))
            }
            None => lines.push(format!("{}: no result within {}", self.subject.name, self.slo)),
        }
        match &self.confirmation.default {
            Some(default) => lines.push(format!("default settings: {}", shown(default))),
            None if self.winner().is_some() => {
                lines.push(format!("default settings: no batch meets {}", self.slo));
            }
            None => {}
        }
        if let Some((gain, is_clear)) = self.confirmation.gain() {
            let noise = 100.0 * self.confirmation.noise();
            lines.push(if is_clear {
                format!(
                    "{:+.1} % against the default settings; rounds differ by up to {noise:.1} %",
                    100.0 * gain
                )
            } else {
                format!(
                    "the default settings are as good: {:+.1} %, and rounds differ by up to {noise:.1} %",
                    100.0 * gain
                )
            });
        }
        if self.confirmation.overtaken {
            lines.push(
                "the default settings served more in longer runs than the best of the other trials"
                    .to_owned(),
            );
        }
        if self.confirmation.refuted > 0 {
            lines.push(format!(
                "{} met the objective in a trial and missed it in longer runs",
                plural(self.confirmation.refuted, "configuration")
            ));
        }
        let known = if self.known > 0 { format!(" after {} of the file", self.known) } else { String::new() };
        let extra = match self.confirmation.extra_trials {
            0 => String::new(),
            extra => format!(" and {extra} of other batches of the default settings"),
        };
        lines.push(format!(
            "{}{known}{extra}, of {} configurations, in {}; stopped because {}",
            plural(self.trials, "trial"),
            number(self.space.len() as f64),
            time_words(self.seconds),
            self.stopped.text()
        ));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    /// The best trials that meet the objective.
    fn top(&self) -> impl Iterator<Item = (Configuration, Measurement)> {
        let able = self.measured.in_order().filter_map(|(index, result)| {
            let one = result.filter(|one| self.objective.capacity(one).is_some())?;
            Some((self.space.get(index)?, one))
        });
        let mut able: Vec<(Configuration, Measurement)> = able.collect();
        able.sort_by(|one, other| other.1.rows_per_s.total_cmp(&one.1.rows_per_s));
        able.into_iter().take(SHOWN)
    }

    /// Every trial that ran.
    fn ran(&self) -> impl Iterator<Item = (Configuration, Measurement)> {
        self.measured.in_order().filter_map(|(index, result)| Some((self.space.get(index)?, result?)))
    }

    /// The trials of the search, without those that came after it.
    fn picture(&self) -> Plot {
        let of_search = self.measured.len().saturating_sub(self.confirmation.extra_trials);
        let steps = self.measured.in_order().take(of_search).filter_map(|(_, result)| {
            let one = result?;
            Some(Step { rows_per_s: one.rows_per_s, feasible: self.objective.capacity(&one).is_some() })
        });
        let steps: Vec<Step> = steps.collect();
        let title = format!("{}: search `{}`, objective {}", self.subject.name, self.search, self.slo);
        plot(title, &steps, self.confirmation.default.map(|default| default.measurement.rows_per_s))
    }

    fn page(&self, settings: Option<&str>) -> String {
        let mut body: String = self.lines().iter().map(|line| paragraph("soft", line)).collect();
        body.push_str(&figure(
            "Path of the search",
            &charts::element(&self.picture()),
            "Rows per second of each trial. Two batches of a trial that misses the objective do not end within it.",
        ));
        if let Some(settings) = settings {
            let _ = write!(body, "<h2>Settings</h2>\n<pre>{}</pre>\n", escape(settings));
        }
        let rows = self.ran().enumerate().map(|(at, (configuration, one))| {
            plain([
                at.saturating_add(1).to_string(),
                configuration.to_string(),
                format!("{:.2}", one.p99_us / 1e3),
                number(one.rows_per_s),
                if self.objective.capacity(&one).is_some() { "yes" } else { "no" }.to_owned(),
            ])
        });
        let header = ["trial", "configuration", "p99 ms", "rows/s", "meets the objective"];
        let _ = write!(body, "<h2>Trials</h2>\n{}", table("Trials", &header, rows));
        document(&format!("Tuning of {}", self.subject.name), &body)
    }

    fn answer(&self, settings: Option<String>) -> Answer<'_> {
        let shown = |confirmed: Confirmed| Shown::new(confirmed.configuration, confirmed.measurement);
        let gain = self.confirmation.gain();
        Answer {
            model: self.subject.name.as_str(),
            machine: &self.machine.words,
            slo_ms: self.slo.0.as_secs_f64() * 1e3,
            search: self.search,
            seed: self.seed,
            configurations: self.space.len(),
            trials: self.trials,
            known: self.known,
            extra_trials: self.confirmation.extra_trials,
            seconds: self.seconds,
            seconds_in_all: self.seconds_in_all,
            stopped: self.stopped.word(),
            why: self.stopped.text(),
            best: self.winner().map(shown),
            default: self.confirmation.default.map(shown),
            gain: gain.map(|(gain, _)| gain),
            gain_is_clear: gain.is_some_and(|(_, is_clear)| is_clear),
            noise: gain.map(|_| self.confirmation.noise()),
            settings,
            notes: &self.notes,
            path: self.ran().map(|(configuration, one)| Shown::new(configuration, one)).collect(),
        }
    }
}

fn time_words(seconds: f64) -> String {
    TimeSpan(Duration::from_millis((seconds.max(0.0) * 1e3) as u64 / 100 * 100)).to_string()
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
