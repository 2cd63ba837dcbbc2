//! The highest load at which 99 % of the requests are answered in time, found by trials in real time.

use std::time::{Duration, Instant};

use gpulet_cuda::CudaOptions;
use models::engine::RunError;
use serde_json::{Value, json};

use super::arm::Arrangement;
use super::lane::{Lane, Mailbox, Predicted};
use super::offer::{Demands, Mix};
use crate::bench::{Bench, Stop};
use crate::spread::Spread;

/// Required attainment.
const ATTAINMENT: f64 = 0.99;
/// Shortest and longest trial.
const LENGTH: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// Factor between loads until one is too low and one is too high.
const STEP: f64 = 1.6;
/// Least number of times for a percentile that is compared.
const TIMES_MIN: usize = 20;

/// The result of a trial.
struct Trial {
    load: f64,
    attainment: f64,
    /// By model: requests offered, and answered in time.
    models: Vec<(u64, u64)>,
    /// By model and batch size: predicted 99th percentiles, and the times.
    times: Vec<(Predicted, Vec<Duration>)>,
}

/// The capacity of an arm.
pub(super) struct Capacity {
    /// Load; 0 if no trial had the required attainment.
    pub(super) load: f64,
    planned: Option<f64>,
    trials: Vec<Trial>,
}

impl Capacity {
    fn best(&self) -> Option<&Trial> {
        self.trials.iter().find(|trial| trial.load == self.load)
    }

    /// Median error of the predicted 99th percentiles at capacity; none if too few batches ran.
    pub(super) fn prediction_error(&self, of: fn(&Predicted) -> Duration) -> Option<f64> {
        let enough = self.best()?.times.iter().filter(|(_, times)| times.len() >= TIMES_MIN);
        let errors = enough.filter_map(|(predicted, times)| {
            let measured = Spread::of(times)?.p99();
            Some((of(predicted).as_secs_f64() * 1e6 - measured).abs() / measured.max(1e-9))
        });
        Spread::of_numbers(errors.collect()).map(|errors| errors.median())
    }

    pub(super) fn to_json(&self, demands: &Demands) -> Value {
        let trials =
            self.trials.iter().map(|trial| json!({"load": trial.load, "attainment": trial.attainment}));
        let models = self.best().map(|trial| &trial.models).into_iter().flatten().zip(&demands.models);
        let models = models.map(|((offered, in_time), demand)| {
            json!({
                "model": demand.name, "slo_ms": demand.slo.as_secs_f64() * 1e3, "offered": offered, "in_time": in_time,
            })
        });
        json!({
            "load": self.load, "planned_for_load": self.planned, "models": models.collect::<Vec<_>>(),
            "trials": trials.collect::<Vec<_>>(),
        })
    }
}

/// Opens the gpulets and searches for the capacity.
pub(super) fn search(
    bench: &Bench<'_>,
    mix: &Mix<'_>,
    arrangement: &Arrangement,
    until: Instant,
) -> Result<Capacity, Stop> {
    let device = bench.take(arrangement.backend, &CudaOptions::default())?;
    let demands = &mix.demands;
    let places = arrangement.places.iter().enumerate();
    let lanes: Result<Vec<_>, _> = places
        .map(|(at, place)| Lane::open(&device, place, mix, &arrangement.co_located(at, demands)))
        .collect();
    let mut lanes = lanes?;
    let left = until.saturating_duration_since(Instant::now());
    let length = (left / (mix.trials + 1)).clamp(LENGTH.0, LENGTH.1);
    let (mut low, mut high): (Option<f64>, Option<f64>) = (None, None);
    let mut load = arrangement.planned.unwrap_or(1.0);
    let mut trials = Vec::new();
    for _ in 0..mix.trials {
        let trial = try_load(&mut lanes, demands, load, length)?;
        let well = trial.attainment >= ATTAINMENT;
        bench.tell(&format!("load {load:.3}: {:.2} % in time", trial.attainment * 100.0));
        trials.push(trial);
        if well {
            low = Some(load)
        } else {
            high = Some(load)
        }
        load = match (low, high) {
            (Some(low), Some(high)) => (low * high).sqrt(),
            (Some(low), None) => low * STEP,
            (None, _) => load / STEP,
        };
        if Instant::now() + length > until {
            break;
        }
    }
    Ok(Capacity { load: low.unwrap_or(0.0), planned: arrangement.planned, trials })
}

/// The lanes of a model's requests, each used in proportion to its weight.
struct Route {
    /// Lane, queue, weight, and requests so far.
    ways: Vec<(usize, usize, f64, f64)>,
}

impl Route {
    fn to(lanes: &[Lane], model: usize) -> Self {
        let ways = lanes.iter().enumerate().flat_map(|(lane, place)| {
            let served = place.models.iter().enumerate().filter(move |(_, served)| served.model == model);
            served.map(move |(queue, served)| (lane, queue, served.weight, 0.0))
        });
        Self { ways: ways.collect() }
    }

    fn next(&mut self) -> Option<(usize, usize)> {
        let due = |way: &&mut (usize, usize, f64, f64)| (way.3 + 1.0) / way.2;
        let way = self.ways.iter_mut().min_by(|one, other| due(one).total_cmp(&due(other)))?;
        way.3 += 1.0;
        Some((way.0, way.1))
    }
}

fn try_load(lanes: &mut [Lane], demands: &Demands, load: f64, length: Duration) -> Result<Trial, Stop> {
    let offered = demands.offered(load, length).map_err(Stop::Other)?;
    let mut routes: Vec<Route> = (0..demands.models.len()).map(|model| Route::to(lanes, model)).collect();
    let mut counts = vec![(0_u64, 0_u64); demands.models.len()];
    let mailboxes: Vec<Mailbox> = lanes.iter().map(|lane| Mailbox::new(lane.models.len())).collect();
    let served: Result<(), RunError> = std::thread::scope(|scope| {
        let lanes = lanes.iter_mut().zip(&mailboxes);
        let running: Vec<_> = lanes.map(|(lane, mailbox)| scope.spawn(move || lane.serve(mailbox))).collect();
        let begun = Instant::now();
        for request in &offered {
            let at = begun + Duration::from_nanos(request.at);
            wait_until(at);
            let model = usize::try_from(request.model).unwrap_or(usize::MAX);
            let (Some(demand), Some(route)) = (demands.models.get(model), routes.get_mut(model)) else {
                continue;
            };
            if let Some(count) = counts.get_mut(model) {
                count.0 += 1;
            }
            let way = route.next().and_then(|(lane, queue)| Some((mailboxes.get(lane)?, queue)));
            if let Some((mailbox, queue)) = way {
                // The deadline counts from the planned arrival, so a late sender does not hide its delay.
                mailbox.put(queue, at + demand.slo);
            }
        }
        mailboxes.iter().for_each(Mailbox::close);
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    });
    served?;
    let mut times = Vec::new();
    for served in lanes.iter_mut().flat_map(|lane| &mut lane.models) {
        times.extend(served.taken());
        if let Some(count) = counts.get_mut(served.model) {
            count.1 += std::mem::take(&mut served.in_time);
        }
    }
    let in_time: u64 = counts.iter().map(|(_, in_time)| in_time).sum();
    let attainment = in_time as f64 / (offered.len().max(1)) as f64;
    Ok(Trial { load, attainment, models: counts, times })
}

/// Sleeps until shortly before `at`, because sleeping is not exact, and yields for the rest.
fn wait_until(at: Instant) {
    let left = at.saturating_duration_since(Instant::now());
    if let Some(most) = left.checked_sub(Duration::from_micros(150)) {
        std::thread::sleep(most);
    }
    while Instant::now() < at {
        std::thread::yield_now();
    }
}
