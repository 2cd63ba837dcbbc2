//! The server's last hour as a workload.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use models::TimeSpan;
use node::Node;
use node::activity::{Activity, ModelHour, PERIOD_SECONDS};
use node::catalog::Loaded;
use node::reason::{Reason, Refusal};
use router_core::Nanos;
use router_core::batch::BatchOptions;
use units::PercentileLimit;
use workload::Workload;

/// Most requests that are simulated; of a busy hour, the last minutes are.
const REQUESTS_MAX: u64 = 500_000;
/// Batches of one size after which their mean time counts instead of the one at the load.
const BATCHES_KNOWN: u64 = 20;
/// Objective of models without one. It appears in no figure but the latency.
const NO_OBJECTIVE: Duration = Duration::from_secs(60);

/// What came, and what it ran on.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Seconds that are simulated.
    pub seconds: u64,
    /// Requests in them.
    pub requests: u64,
    /// Lanes that are up.
    pub lanes: u32,
    /// Whether each has another one at idle priority.
    pub idle_priority: bool,
    /// How much longer best-effort work may make other requests.
    pub protect: Option<PercentileLimit>,
    /// Policy of the model with the most requests.
    pub policy: String,
    /// Its options.
    pub batching: BatchOptions,
    /// What the simulation leaves out.
    pub notes: Vec<String>,
    models: Vec<ModelTraffic>,
}

#[derive(Clone, Debug)]
struct ModelTraffic {
    name: String,
    objective: Option<Duration>,
    best_effort: bool,
    rows: u32,
    /// Time of batches by rows, ascending in both.
    times: Vec<(u32, Duration)>,
    /// Requests by period, the newest last.
    periods: Vec<u64>,
    measured: Option<f64>,
}

impl Traffic {
    /// What the server remembers.
    ///
    /// # Errors
    /// No request has ended lately.
    pub fn of(activity: &Activity, node: &Node) -> Result<Self, Refusal> {
        let (at_idle_priority, ordinary): (Vec<_>, Vec<_>) =
            node.catalog().lanes().into_iter().partition(|lane| lane.partition().idle_priority());
        let (lanes, idle_priority) = (ordinary.len(), !at_idle_priority.is_empty());
        let serving = node.catalog().all_serving();
        let mut notes = vec![format!(
            "arrivals are spread at random within each {PERIOD_SECONDS} s, and requests have the mean number of rows"
        )];
        let mut models: Vec<ModelTraffic> = Vec::new();
        let mut policies: BTreeMap<String, (u64, BatchOptions)> = BTreeMap::new();
        for hour in activity.hours() {
            let of = |loaded: &&Arc<Loaded>| loaded.name == hour.name && loaded.version == hour.version;
            let Some(loaded) = serving.iter().find(of) else { continue };
            let ended: u64 = hour.periods.iter().sum();
            if ended == 0 {
                continue;
            }
            let config = loaded.config();
            let options = BatchOptions {
                max_delay: (!config.max_delay.is_zero()).then(|| Nanos::from(config.max_delay)),
                preferred: config.preferred.iter().map(|size| size.get()).collect(),
                drop: None,
            };
            policies.entry(config.policy.clone()).or_insert((0, options)).0 += ended;
            if loaded.lanes().len() < lanes {
                notes.push(format!(
                    "{}: may run on every lane here, not on {} only",
                    hour.name,
                    loaded.lanes().len()
                ));
            }
            match ModelTraffic::of(hour, loaded) {
                Ok(model) => merge(&mut models, model),
                Err(note) => notes.push(note),
            }
        }
        if policies.len() > 1 {
            notes.push("all models have the policy of the one with the most requests".to_owned());
        }
        let commonest = policies.into_iter().max_by_key(|(_, (ended, _))| *ended);
        let Some((policy, (_, batching))) = commonest.filter(|_| !models.is_empty()) else {
            return Err(Refusal::new(
                Reason::ModelNotReady,
                "no request has ended lately: there is nothing to simulate",
            ));
        };
        let lanes = u32::try_from(lanes.max(1)).unwrap_or(u32::MAX);
        let mut traffic = Self {
            seconds: 0,
            requests: 0,
            lanes,
            idle_priority,
            protect: node.protect,
            policy,
            batching,
            notes,
            models,
        };
        traffic.shorten();
        Ok(traffic)
    }

    /// Keeps the last periods whose requests can be simulated in the time that a person waits.
    fn shorten(&mut self) {
        let known = self.models.iter().map(|model| model.periods.len()).max().unwrap_or(0);
        let of_period = |ago: usize| -> u64 { self.models.iter().map(|model| model.ago(ago)).sum() };
        let (mut kept, mut requests) = (0, 0);
        while kept < known && (kept == 0 || requests + of_period(kept) <= REQUESTS_MAX) {
            requests += of_period(kept);
            kept += 1;
        }
        for model in &mut self.models {
            model.periods = (0..kept).rev().map(|ago| model.ago(ago)).collect();
        }
        self.models.retain(|model| model.periods.iter().any(|count| *count > 0));
        (self.seconds, self.requests) = (kept as u64 * PERIOD_SECONDS, requests);
    }

    /// Whether a model has requests in it.
    pub fn has(&self, name: &str) -> bool {
        self.models.iter().any(|model| model.name == name)
    }

    /// Part of a model's real requests that was answered in time.
    pub fn measured(&self, name: &str) -> Option<f64> {
        self.models.iter().find(|model| model.name == name)?.measured
    }

    /// The traffic on lanes, with other objectives for some models.
    ///
    /// # Errors
    /// An objective cannot be met by one request alone.
    pub fn workload(
        &self,
        lanes: u32,
        objectives: &BTreeMap<String, TimeSpan>,
    ) -> Result<Workload, units::Fault> {
        let mut text =
            format!("name = \"last hour\"\nduration = \"{}s\"\n[lanes]\ncount = {lanes}\n", self.seconds);
        if self.idle_priority {
            text.push_str("idle_priority = true\n");
        }
        if let Some(limit) = self.protect {
            let _ = writeln!(text, "[best_effort]\nprotect = \"{limit}\"");
        }
        for (number, model) in self.models.iter().enumerate() {
            let objective = objectives.get(&model.name).map(|span| span.0).or(model.objective);
            // Writing to a string cannot fail.
            let _ = model.write(&mut text, number, objective);
        }
        let mut files = |name: &str| {
            let model = name.parse::<usize>().ok().and_then(|number| self.models.get(number));
            model.map(ModelTraffic::counts).ok_or_else(|| format!("no file {name}"))
        };
        Workload::parse(&text, &mut files)
    }
}

/// Adds the traffic of a version to that of the other versions of its model.
fn merge(models: &mut Vec<ModelTraffic>, model: ModelTraffic) {
    let Some(known) = models.iter_mut().find(|known| known.name == model.name) else {
        return models.push(model);
    };
    let length = known.periods.len().max(model.periods.len());
    known.periods = (0..length).rev().map(|ago| known.ago(ago) + model.ago(ago)).collect();
}

impl ModelTraffic {
    fn of(hour: ModelHour, loaded: &Loaded) -> Result<Self, String> {
        let mut times: BTreeMap<u32, Duration> = loaded.measured.iter().copied().collect();
        let batches = loaded.statistics.batch_times();
        times.extend(
            batches
                .iter()
                .filter(|(_, count, _)| *count >= BATCHES_KNOWN)
                .map(|(rows, _, time)| (*rows, *time)),
        );
        if times.is_empty() {
            return Err(format!("{}: left out, because the time of its batches is not known", hour.name));
        }
        // A larger batch is never faster.
        let mut longest = Duration::from_micros(1);
        let times = times.into_iter().map(|(rows, time)| {
            longest = longest.max(time);
            (rows, longest)
        });
        let times: Vec<(u32, Duration)> = times.collect();
        let largest = times.last().map_or(1, |(rows, _)| *rows);
        let rows = (loaded.statistics.mean_rows().round() as u32).clamp(1, largest);
        let objective = loaded.config().slo;
        let best_effort = loaded.config().best_effort;
        Ok(Self {
            name: hour.name,
            objective,
            best_effort,
            rows,
            times,
            periods: hour.periods,
            measured: hour.attainment,
        })
    }

    /// Requests of one period. 0 is the newest.
    fn ago(&self, periods: usize) -> u64 {
        self.periods.iter().rev().nth(periods).copied().unwrap_or(0)
    }

    fn write(&self, text: &mut String, number: usize, objective: Option<Duration>) -> std::fmt::Result {
        let us = |time: Duration| format!("{:.3}us", time.as_secs_f64() * 1e6);
        writeln!(text, "[models.{:?}]", self.name)?;
        writeln!(text, "slo = \"{}\"\nrows = {}", us(objective.unwrap_or(NO_OBJECTIVE)), self.rows)?;
        match self.best_effort {
            true => writeln!(text, "class = \"best_effort\"")?,
            false => writeln!(text, "deadline = {}", objective.is_some())?,
        }
        let points: Vec<String> =
            self.times.iter().map(|(rows, time)| format!("[{rows}, \"{}\"]", us(*time))).collect();
        writeln!(text, "profile = {{ points = [{}] }}", points.join(", "))?;
        writeln!(
            text,
            "arrivals = {{ process = \"trace\", format = \"counts-per-second\", file = \"{number}\", repeat = false }}"
        )
    }

    /// A count for each second.
    fn counts(&self) -> String {
        let mut text = String::new();
        for count in &self.periods {
            for second in 0..PERIOD_SECONDS {
                // The remainder is spread over the period.
                let until = |second: u64| count * second / PERIOD_SECONDS;
                let _ = writeln!(text, "{}", until(second + 1) - until(second));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, periods: &[u64]) -> ModelTraffic {
        ModelTraffic {
            name: name.to_owned(),
            best_effort: false,
            objective: Some(Duration::from_millis(50)),
            rows: 1,
            times: vec![(1, Duration::from_millis(5)), (8, Duration::from_millis(12))],
            periods: periods.to_vec(),
            measured: Some(0.9),
        }
    }

    fn traffic(models: Vec<ModelTraffic>) -> Traffic {
        let (policy, batching) = ("deadline".to_owned(), BatchOptions::default());
        let mut traffic = Traffic {
            seconds: 0,
            requests: 0,
            lanes: 2,
            idle_priority: true,
            protect: "p99 <= 1.05x".parse().ok(),
            policy,
            batching,
            notes: Vec::new(),
            models,
        };
        traffic.shorten();
        traffic
    }

    #[test]
    fn the_hour_becomes_a_workload_with_as_many_requests() {
        let job = ModelTraffic { best_effort: true, objective: None, ..model("b.c", &[5]) };
        let traffic = traffic(vec![model("a", &[100, 7, 0]), job]);
        assert_eq!((traffic.seconds, traffic.requests), (30, 112));
        let workload = traffic.workload(3, &BTreeMap::new()).unwrap();
        assert_eq!((workload.lanes.count, workload.models.len()), (3, 2));
        assert!(workload.lanes.idle_priority && workload.models[1].best_effort);
        assert!(workload.protect.is_some() && workload.protect == traffic.protect);
        assert!((workload.mean_rate() - 112.0 / 30.0).abs() < 1e-6, "{}", workload.mean_rate());
        let other = BTreeMap::from([("a".to_owned(), TimeSpan(Duration::from_millis(30)))]);
        assert_eq!(traffic.workload(1, &other).unwrap().models[0].slo, 30_000_000);
        let tight = BTreeMap::from([("a".to_owned(), TimeSpan(Duration::from_millis(1)))]);
        assert!(traffic.workload(1, &tight).unwrap_err().to_string().contains("cannot be met"));
    }

    #[test]
    fn of_a_busy_hour_the_last_minutes_are_kept() {
        let busy = traffic(vec![model("a", &[400_000, 300_000, 100_000])]);
        assert_eq!((busy.seconds, busy.requests), (20, 400_000));
        let one = traffic(vec![model("a", &[1, 900_000])]);
        assert_eq!((one.seconds, one.requests), (10, 900_000), "at least one period");
    }

    #[test]
    fn versions_of_a_model_are_one() {
        let mut models = vec![model("a", &[1, 2, 3])];
        merge(&mut models, model("a", &[10]));
        assert_eq!((models.len(), models[0].periods.as_slice()), (1, [1, 2, 13].as_slice()));
    }
}
