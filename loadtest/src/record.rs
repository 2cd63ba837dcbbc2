//! The counts of one sending thread. HOT PATH: a few additions per answer, and no allocation once the histograms cover the
//! latencies that occur.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;
use crate::timing::Timing;

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Resolution of latencies relative to the SLO: thousandths.
pub(crate) const SLO_STEPS: u64 = 1_000;

/// Number of models above which their histograms have two digits.
const MANY_MODELS: usize = 100;

/// Upper bound on the timings that one thread keeps.
const TIMINGS_MAX: usize = 1_000_000;

/// Upper bound on different reasons, so that a server cannot fill the memory with them.
const REASONS_MAX: usize = 64;

/// A request that was due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Index of its model.
    pub model: u32,
    /// Index of its stage.
    pub stage: u32,
    /// Nanoseconds from the start of the run.
    pub at: u64,
}

/// Durations in microseconds.
pub(crate) type Times = Histogram<u64>;

/// An empty histogram that grows, with this precision in digits.
pub(crate) fn times(digits: u8) -> Option<Times> {
    Histogram::new(digits).ok()
}

/// Adds a time in nanoseconds, as microseconds rounded up and at least 1.
fn put(histogram: &mut Option<Times>, digits: u8, nanos: u64) {
    if histogram.is_none() {
        *histogram = times(digits);
    }
    if let Some(histogram) = histogram {
        // Grows by itself, so no value is out of range.
        let _ = histogram.record(nanos.div_ceil(1_000).max(1));
    }
}

/// Adds one histogram to another.
pub(crate) fn merge(into: &mut Option<Times>, from: &Option<Times>) {
    match (into.as_mut(), from) {
        (_, None) => {}
        (None, Some(_)) => into.clone_from(from),
        // Grows by itself, so no value is out of range.
        (Some(into), Some(from)) => drop(into.add(from)),
    }
}

/// Counts of a model or of a stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub offered: u64,
    pub answered: u64,
    pub good: u64,
    pub refused: BTreeMap<String, u64>,
    pub failed: BTreeMap<String, u64>,
    pub latency: Option<Times>,
    pub service: Option<Times>,
    pub refusal: Option<Times>,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.answered += other.answered;
        self.good += other.good;
        for (into, from) in [(&mut self.refused, &other.refused), (&mut self.failed, &other.failed)] {
            for (reason, count) in from {
                *into.entry(reason.clone()).or_insert(0) += count;
            }
        }
        merge(&mut self.latency, &other.latency);
        merge(&mut self.service, &other.service);
        merge(&mut self.refusal, &other.refusal);
    }
}

/// Counts of a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecondTally {
    pub offered: u64,
    pub answered: u64,
    pub good: u64,
    pub refused: u64,
    pub failed: u64,
    pub latency: Option<Times>,
    /// In [`SLO_STEPS`] of the model's SLO.
    pub of_slo: Option<Times>,
    pub send_error: Option<Times>,
}

impl SecondTally {
    pub fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.answered += other.answered;
        self.good += other.good;
        self.refused += other.refused;
        self.failed += other.failed;
        merge(&mut self.latency, &other.latency);
        merge(&mut self.of_slo, &other.of_slo);
        merge(&mut self.send_error, &other.send_error);
    }
}

/// The objective of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objective {
    /// Latency objective in nanoseconds.
    pub slo: u64,
    /// Whether a later answer does not count.
    pub deadline: bool,
}

/// All counts of one thread.
#[derive(Debug)]
pub(crate) struct Record {
    /// Nanoseconds from the start that tallies leave out.
    warmup: u64,
    objectives: Vec<Objective>,
    digits: u8,
    second_digits: u8,
    pub models: Vec<Tally>,
    /// Empty for a single stage.
    pub stages: Vec<Tally>,
    /// By seconds from the start, without those that were taken.
    pub seconds: BTreeMap<u64, SecondTally>,
    pub send_error: Option<Times>,
    pub held: u64,
    pub in_flight: u64,
    /// The first message of each reason.
    pub messages: BTreeMap<String, String>,
    /// Timings of single requests after the warm-up, if they are kept.
    pub timings: Option<Vec<Timing>>,
}

impl Record {
    /// `stages` is their number. With `keep`, seconds have three digits.
    pub fn new(objectives: Vec<Objective>, stages: usize, warmup: u64, keep: bool) -> Self {
        let digits = if objectives.len() > MANY_MODELS { 2 } else { 3 };
        Self {
            warmup,
            digits,
            second_digits: if keep { 3 } else { 2 },
            models: vec![Tally::default(); objectives.len()],
            stages: if stages > 1 { vec![Tally::default(); stages] } else { Vec::new() },
            objectives,
            seconds: BTreeMap::new(),
            send_error: None,
            held: 0,
            in_flight: 0,
            messages: BTreeMap::new(),
            timings: None,
        }
    }

    fn counts(&self, due: Due) -> bool {
        due.at >= self.warmup
    }

    fn tallies(&mut self, due: Due) -> impl Iterator<Item = &mut Tally> {
        let counted = self.counts(due);
        let model = self.models.get_mut(due.model as usize).filter(|_| counted);
        model.into_iter().chain(self.stages.get_mut(due.stage as usize))
    }

    fn second(&mut self, due: Due) -> &mut SecondTally {
        self.seconds.entry(due.at / SECOND).or_default()
    }

    /// A request was due.
    pub fn due(&mut self, due: Due) {
        self.in_flight += 1;
        self.second(due).offered += 1;
        self.tallies(due).for_each(|tally| tally.offered += 1);
    }

    /// Records that it was started `late` nanoseconds after it was due.
    pub fn begun(&mut self, due: Due, late: u64) {
        put(&mut self.second(due).send_error, 2, late);
        if self.counts(due) {
            put(&mut self.send_error, 3, late);
        }
    }

    /// Records that it ended, `latency` nanoseconds after it was due and `service` after it was sent.
    pub fn ended(&mut self, due: Due, outcome: Outcome, latency: u64, service: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match outcome {
            Outcome::Answered => self.answered(due, latency, service),
            Outcome::Refused { reason, message } => {
                let reason = self.reason(reason, message);
                self.second(due).refused += 1;
                let digits = self.digits;
                for tally in self.tallies(due) {
                    *tally.refused.entry(reason.clone()).or_insert(0) += 1;
                    put(&mut tally.refusal, digits, latency);
                }
            }
            Outcome::Failed { reason, message } => {
                let reason = self.reason(reason, message);
                self.second(due).failed += 1;
                for tally in self.tallies(due) {
                    *tally.failed.entry(reason.clone()).or_insert(0) += 1;
                }
            }
        }
    }

    fn answered(&mut self, due: Due, latency: u64, service: u64) {
        let Some(&objective) = self.objectives.get(due.model as usize) else { return };
        let slo = objective.slo.max(1);
        let good = !objective.deadline || latency <= slo;
        let (digits, second_digits) = (self.digits, self.second_digits);
        let of_slo = u128::from(latency) * u128::from(SLO_STEPS) / u128::from(slo);
        let second = self.second(due);
        second.answered += 1;
        second.good += u64::from(good);
        put(&mut second.latency, second_digits, latency);
        put(&mut second.of_slo, 2, u64::try_from(of_slo).unwrap_or(u64::MAX).saturating_mul(1_000));
        for tally in self.tallies(due) {
            tally.answered += 1;
            tally.good += u64::from(good);
            put(&mut tally.latency, digits, latency);
            put(&mut tally.service, digits, service);
        }
    }

    /// Records where the time of an answered request was spent.
    pub fn timing(&mut self, due: Due, timing: Option<Timing>) {
        let counts = self.counts(due);
        if let (Some(timings), Some(timing)) = (&mut self.timings, timing)
            && counts
            && timings.len() < TIMINGS_MAX
        {
            timings.push(timing);
        }
    }

    /// The reason to count. Keeps its first message.
    fn reason(&mut self, reason: String, message: String) -> String {
        if self.messages.contains_key(&reason) {
            return reason;
        }
        if self.messages.len() >= REASONS_MAX {
            return "other".to_owned();
        }
        self.messages.insert(reason.clone(), message);
        reason
    }

    /// Takes the seconds before `before`, in which no request is in flight any more.
    pub fn take_seconds(&mut self, before: u64) -> BTreeMap<u64, SecondTally> {
        let rest = self.seconds.split_off(&before);
        std::mem::replace(&mut self.seconds, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let objectives = vec![
            Objective { slo: 10_000_000, deadline: true },
            Objective { slo: 10_000_000, deadline: false },
        ];
        Record::new(objectives, 2, SECOND, false)
    }

    fn due(model: u32, at: u64) -> Due {
        Due { model, stage: u32::from(at >= 2 * SECOND), at }
    }

    #[test]
    fn the_warm_up_counts_in_seconds_and_stages_only() {
        let mut record = record();
        for at in [0, SECOND, 2 * SECOND] {
            record.due(due(0, at));
            record.begun(due(0, at), 5_000);
            record.ended(due(0, at), Outcome::Answered, 3_000_000, 2_000_000);
        }
        assert_eq!(record.in_flight, 0);
        assert_eq!((record.models[0].offered, record.models[0].good), (2, 2));
        assert_eq!(record.stages.iter().map(|stage| stage.offered).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(record.seconds.len(), 3);
        assert_eq!(record.send_error.as_ref().unwrap().len(), 2);
        let taken = record.take_seconds(2);
        assert_eq!(taken.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(record.seconds.len(), 1);
    }

    #[test]
    fn an_answer_is_good_within_the_objective_or_without_a_deadline() {
        let mut record = record();
        for model in [0, 1] {
            for latency in [10_000_000, 10_000_001] {
                record.due(due(model, SECOND));
                record.ended(due(model, SECOND), Outcome::Answered, latency, latency);
            }
        }
        assert_eq!((record.models[0].good, record.models[1].good), (1, 2));
        let of_slo = record.seconds[&1].of_slo.as_ref().unwrap();
        assert!((995..=1_010).contains(&of_slo.max()), "{}", of_slo.max());
    }

    #[test]
    fn reasons_are_counted_and_bounded() {
        let mut record = record();
        for number in 0..100 {
            record.due(due(0, SECOND));
            let (reason, message) = (format!("reason {number}"), format!("words {number}"));
            record.ended(due(0, SECOND), Outcome::Refused { reason, message }, 1_000, 1_000);
        }
        assert_eq!(record.models[0].refused.len(), REASONS_MAX + 1);
        assert_eq!(record.models[0].refused["other"], 36);
        assert_eq!(record.messages["reason 3"], "words 3");
        assert_eq!(record.models[0].refusal.as_ref().unwrap().len(), 100);
    }
}
