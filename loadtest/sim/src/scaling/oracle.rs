//! What somebody could do who knows what comes.

use super::demand::Demand;
use super::fleet::Fleet;
use super::queue::Queue;
use super::run::{Controller, Rules, Wanted};
use gpulet_core::scaling::Observation;

/// Halvings of the range that a capacity is looked for in.
const HALVINGS: u32 = 24;

/// Cuts time into windows as long as a change takes, and has for each the least capacity of every model that keeps
/// the attainment in it, in force when it begins. It pays for the time of changes as everybody does.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Rates of each window.
    windows: Vec<Vec<f64>>,
    window_us: u64,
}

/// Part of a model's requests that is lost in a window at a capacity, from an empty queue.
fn lost(window: &[u32], models: usize, model: usize, capacity: f64, wait: f64, seconds: f64) -> f64 {
    let mut queue = Queue::default();
    let counts = window.chunks_exact(models).filter_map(|tick| tick.get(model));
    counts.map(|count| queue.pass(seconds, f64::from(*count), capacity, wait)).sum()
}

fn least(window: &[u32], models: usize, model: usize, wait: f64, seconds: f64, allowed: f64) -> f64 {
    let counts = || window.chunks_exact(models).filter_map(|tick| tick.get(model));
    let offered: f64 = counts().map(|count| f64::from(*count)).sum();
    let highest = counts().max().map_or(0.0, |count| f64::from(*count)) / seconds;
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let is_enough = lost(window, models, model, middle, wait, seconds) <= allowed * offered;
        if is_enough { high = middle } else { low = middle }
    }
    high
}

impl Oracle {
    /// For an attainment that each window keeps for each model.
    pub fn new(demand: &Demand, fleet: &Fleet, rules: &Rules) -> Self {
        let ticks = usize::try_from(rules.change_us / demand.tick_us()).unwrap_or(usize::MAX).max(1);
        let (models, seconds) = (demand.models(), demand.tick_us() as f64 / 1e6);
        let allowed = 1.0 - rules.attainment;
        let of = |window: &[u32]| {
            let cuts = fleet.cuts().iter().enumerate();
            cuts.map(|(model, cut)| least(window, models, model, cut.wait, seconds, allowed)).collect()
        };
        let windows = demand.windows(ticks).map(of).collect();
        Self { windows, window_us: demand.tick_us().saturating_mul(ticks as u64) }
    }

    /// The highest rate that each model needs in any window.
    pub fn peaks(&self) -> Vec<f64> {
        let models = self.windows.first().map_or(0, Vec::len);
        let of = |model: usize| {
            self.windows.iter().filter_map(|window| window.get(model)).copied().fold(0.0, f64::max)
        };
        (0..models).map(of).collect()
    }
}

impl Controller for Oracle {
    fn decide(&mut self, observation: &Observation<'_>) -> Option<Wanted> {
        if !observation.now.0.is_multiple_of(self.window_us) {
            return None;
        }
        // A change asked for now is in force in the window after this one.
        let next = usize::try_from(observation.now.0 / self.window_us).ok()?.checked_add(1)?;
        let rates = self.windows.get(next)?.clone();
        Some(Wanted { rates, load_us: 0 })
    }
}

/// Device-hours of whoever knows what comes and loses no more of all requests together than the attainment allows,
/// changes capacity no more often than once in the time that a change takes, and rents parts of devices, by the second.
///
/// The cheapest choice of losses, of all windows and models together: where a request served costs the most, it is
/// lost. Costs are taken to be straight between [`STEPS`].
pub fn bound(demand: &Demand, fleet: &Fleet, rules: &Rules) -> f64 {
    let ticks = usize::try_from(rules.change_us / demand.tick_us()).unwrap_or(usize::MAX).max(1);
    let (models, seconds) = (demand.models(), demand.tick_us() as f64 / 1e6);
    let skipped = usize::try_from(rules.warmup_us / demand.tick_us()).unwrap_or(usize::MAX) / ticks;
    let (mut savings, mut offered, mut cost) = (Vec::new(), 0.0, 0.0);
    for window in demand.windows(ticks).skip(skipped) {
        let time = (window.len() / models) as f64 * seconds;
        for (model, cut) in fleet.cuts().iter().enumerate() {
            let counts = window.chunks_exact(models).filter_map(|tick| tick.get(model));
            let requests: f64 = counts.map(|count| f64::from(*count)).sum();
            let dear =
                |allowed| least(window, models, model, cut.wait, seconds, allowed) / cut.per_device * time;
            offered += requests;
            let mut before = (0.0, dear(0.0));
            cost += before.1;
            for allowed in STEPS {
                let after = (allowed * requests, dear(allowed));
                savings.push(Saving { loss: after.0 - before.0, saved: before.1 - after.1 });
                before = after;
            }
        }
    }
    savings.retain(|saving| saving.loss > 0.0);
    savings.sort_by(|left, right| (right.saved / right.loss).total_cmp(&(left.saved / left.loss)));
    let mut left = (1.0 - rules.attainment) * offered;
    for saving in savings {
        let part = (left / saving.loss).min(1.0);
        cost -= part * saving.saved;
        left -= part * saving.loss;
        if left <= 0.0 {
            break;
        }
    }
    cost / fleet.packing() / 3_600.0
}

/// Parts of a window's requests that may be lost.
const STEPS: [f64; 7] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0];

/// More losses in a window, and the device-seconds that they save.
#[derive(Clone, Copy, Debug)]
struct Saving {
    loss: f64,
    saved: f64,
}
