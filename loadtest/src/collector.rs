//! Combines the records of a run's threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::drive::Drive;
use crate::figures;
use crate::keeping_up;
use crate::record::{Record, SECOND, SecondTally, Tally, merge};
use crate::report::{Client, Driven, ModelFigures, Report, Second, StageFigures, Target};
use crate::sender::Spent;
use jiff::Timestamp;
use workload::{Extent, Workload};

/// Version of the layout of [`Report`].
const FORMAT: u32 = 1;

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Live {
    /// Seconds since the first request could be due.
    pub elapsed_s: f64,
    /// Length of the run in seconds; none if it ends by a number of requests.
    pub total_s: Option<f64>,
    /// Requests that were due in the last full second.
    pub rate: u64,
    /// Of these, answered in time.
    pub good: u64,
    /// The 99th percentile of that second's latencies.
    pub p99_ms: Option<f64>,
    /// The same in multiples of the SLO.
    pub p99_of_slo: Option<f64>,
    /// Requests that the server has rejected so far.
    pub refused: u64,
    /// Requests that have failed so far.
    pub failed: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Whether this client kept up in the last full second.
    pub kept_up: bool,
}

#[derive(Debug)]
pub(crate) struct Collector {
    workload: Workload,
    /// Seconds with requests that may still be in flight.
    open: BTreeMap<u64, SecondTally>,
    closed: Vec<Second>,
    /// Seconds after which no request of a second is in flight any more.
    settled_after: u64,
    allowed: u64,
    keep: bool,
}

impl Collector {
    pub fn new(workload: &Workload, timeout: Duration, keep: bool) -> Self {
        let slo_min = workload.models.iter().map(|model| model.slo).min().unwrap_or(u64::MAX);
        Self {
            workload: workload.clone(),
            open: BTreeMap::new(),
            closed: Vec::new(),
            settled_after: timeout.as_secs() + 2,
            allowed: keeping_up::allowed(slo_min),
            keep,
        }
    }

    /// Takes the seconds of a thread in which no request is in flight any more.
    pub fn take(&mut self, record: &mut Record, now: u64) {
        let over = (now / SECOND).saturating_sub(self.settled_after);
        self.add(record.take_seconds(over));
    }

    fn add(&mut self, seconds: BTreeMap<u64, SecondTally>) {
        for (t, second) in seconds {
            self.open.entry(t).or_default().add(&second);
        }
    }

    /// Progress of the run, from the second before `t`.
    pub fn live(&self, records: &[Arc<Mutex<Record>>], t: u64, now: u64, drive: &Drive) -> Live {
        let mut last = SecondTally::default();
        let mut live = Live { kept_up: true, ..Live::default() };
        for record in records {
            let record = record.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(second) = t.checked_sub(1).and_then(|t| record.seconds.get(&t)) {
                last.add(second);
            }
            for tally in &record.models {
                live.refused += tally.refused.values().sum::<u64>();
                live.failed += tally.failed.values().sum::<u64>();
            }
            live.in_flight += record.in_flight;
        }
        let second = figures::second(t, &last, self.allowed, false);
        let total = match (drive, self.workload.extent) {
            (Drive::Closed { time, .. }, _) => Some(*time),
            (Drive::Open(stages), Extent::Time(_)) => Some(stages.total()),
            (Drive::Open(_), Extent::Requests(_)) => None,
        };
        Live {
            elapsed_s: figures::seconds(now),
            total_s: total.map(figures::seconds),
            rate: second.offered,
            good: second.good,
            p99_ms: second.p99_ms,
            p99_of_slo: second.p99_of_slo,
            kept_up: second.kept_up,
            ..live
        }
    }

    /// The report, without the server and its own statistics.
    pub fn report(
        mut self,
        records: &[Arc<Mutex<Record>>],
        spent: &[Spent],
        drive: &Drive,
        interrupted: bool,
        started: SystemTime,
    ) -> Report {
        let mut models = vec![Tally::default(); self.workload.models.len()];
        let mut stages: Vec<Tally> = Vec::new();
        let (mut send_error, mut held, mut messages) = (None, 0, BTreeMap::new());
        let mut timings = Vec::new();
        for record in records {
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            self.add(record.take_seconds(u64::MAX));
            models.iter_mut().zip(&record.models).for_each(|(into, from)| into.add(from));
            stages.resize(record.stages.len(), Tally::default());
            stages.iter_mut().zip(&record.stages).for_each(|(into, from)| into.add(from));
            merge(&mut send_error, &record.send_error);
            held += record.held;
            messages.append(&mut record.messages);
            timings.append(record.timings.get_or_insert_default());
        }
        for (t, second) in std::mem::take(&mut self.open) {
            self.closed.push(figures::second(t, &second, self.allowed, self.keep));
        }
        let end = self.end(spent, drive, interrupted);
        let measured_s = figures::seconds(end.saturating_sub(self.workload.warmup));
        let mut all = Tally::default();
        let (counted, other): (Vec<_>, Vec<_>) =
            models.iter().zip(self.workload.counted()).partition(|(_, is)| *is);
        counted.into_iter().for_each(|(model, _)| all.add(model));
        let total = figures::figures(&all, measured_s);
        other.into_iter().for_each(|(model, _)| all.add(model));
        Report {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workload: self.workload.name.clone(),
            seed: self.workload.seed,
            target: Target {
                url: String::new(),
                protocol: String::new(),
                tensors: String::new(),
                server: String::new(),
            },
            driven: match drive {
                Drive::Open(_) => Driven::Open,
                Drive::Closed { concurrency, .. } => Driven::Closed { concurrency: *concurrency },
            },
            started: time_of_day(started, 0),
            warmup_s: figures::seconds(self.workload.warmup),
            measured_s,
            interrupted,
            total,
            models: self.model_figures(&models, measured_s),
            stages: stage_figures(&stages, drive, end),
            client: self.client(spent, held, &send_error, started, all.offered),
            seconds: self.closed,
            capacity: None,
            messages,
            timings,
        }
    }

    /// Nanoseconds from the start of the run until the last request was due.
    fn end(&self, spent: &[Spent], drive: &Drive, interrupted: bool) -> u64 {
        let sent = spent.iter().map(|spent| spent.sending).max().unwrap_or(0);
        match (drive, self.workload.extent) {
            _ if interrupted => sent,
            (Drive::Closed { time, .. }, _) => *time,
            (Drive::Open(stages), Extent::Time(_)) => stages.total(),
            (Drive::Open(_), Extent::Requests(_)) => sent,
        }
    }

    fn model_figures(&self, tallies: &[Tally], measured_s: f64) -> Vec<ModelFigures> {
        let models = self.workload.models.iter().zip(tallies).map(|(model, tally)| ModelFigures {
            name: model.name.clone(),
            served_as: model.name.clone(),
            slo_ms: model.slo as f64 / 1e6,
            figures: figures::figures(tally, measured_s),
            batches: Vec::new(),
            server: None,
        });
        models.collect()
    }

    fn client(
        &self,
        spent: &[Spent],
        held: u64,
        send_error: &Option<crate::record::Times>,
        started: SystemTime,
        offered: u64,
    ) -> Client {
        let cpu: u64 = spent.iter().map(|spent| spent.cpu).sum();
        let sending: u64 = spent.iter().map(|spent| spent.sending).sum();
        let late = self.closed.iter().filter(|second| !second.kept_up);
        let all_offered: u64 = self.closed.iter().map(|second| second.offered).sum();
        Client {
            threads: u32::try_from(spent.len()).unwrap_or(u32::MAX),
            connections: spent.iter().map(|spent| spent.connections).sum(),
            held,
            send_error: figures::latency(send_error),
            busy: (cpu as f64 / sending.max(1) as f64).min(1.0),
            cpu_us: cpu as f64 / 1e3 / all_offered.max(offered).max(1) as f64,
            late_from: late.clone().next().map(|second| time_of_day(started, second.t)),
            late_seconds: late.count() as u64,
        }
    }
}

fn stage_figures(tallies: &[Tally], drive: &Drive, end: u64) -> Vec<StageFigures> {
    let Drive::Open(stages) = drive else { return Vec::new() };
    let mut from = 0;
    let mut told = Vec::new();
    for (stage, tally) in stages.iter().zip(tallies) {
        let to = (from + stage.time).min(end);
        if to <= from {
            break;
        }
        told.push(StageFigures {
            from_s: figures::seconds(from),
            to_s: figures::seconds(to),
            scale_from: stage.from,
            scale_to: stage.to,
            figures: figures::figures(tally, figures::seconds(to - from)),
        });
        from = to;
    }
    told
}

/// UTC, RFC 3339; empty for a time beyond the calendar.
fn time_of_day(started: SystemTime, seconds: u64) -> String {
    let at = started.checked_add(Duration::from_secs(seconds));
    let stamp = at.and_then(|at| Timestamp::try_from(at).ok());
    stamp.map(|stamp| format!("{stamp:.3}")).unwrap_or_default()
}
