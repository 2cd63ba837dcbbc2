//! What gateways ask a picker for, refused requests included: the leader of the fleet plans for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::counter;

use crate::follow;
use crate::proto::fleet::picker_client::PickerClient;
use crate::proto::fleet::{DemandRequest, ModelDemand};

/// Time of one count. The mean is over [`COUNTS`] of them.
const PERIOD: Duration = Duration::from_secs(5);
/// Counts of a model.
const COUNTS: usize = 12;
/// Models that are counted at most. Clients may ask for any name.
const MODELS_MAX: usize = 16_384;
/// Time in which a picker answers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Rows by model, in the last minute.
#[derive(Clone, Debug, Default, PartialEq)]
struct Demand {
    /// Number of the period that is counted now.
    period: u64,
    models: HashMap<String, [u64; COUNTS]>,
}

impl Demand {
    /// Ends the counts of periods that passed.
    fn advance(&mut self, now: Duration) {
        let period = now.as_secs() / PERIOD.as_secs();
        let passed = usize::try_from(period.saturating_sub(self.period)).unwrap_or(COUNTS).min(COUNTS);
        if passed > 0 {
            self.period = period;
            self.models.retain(|_, counts| {
                counts.rotate_right(passed);
                counts.iter_mut().take(passed).for_each(|count| *count = 0);
                counts.iter().any(|count| *count > 0)
            });
        }
    }

    /// A request came in. False: too many models were asked for to count it.
    fn arrived(&mut self, now: Duration, model: &str, rows: u32) -> bool {
        self.advance(now);
        if !self.models.contains_key(model) {
            if self.models.len() >= MODELS_MAX {
                return false;
            }
            self.models.insert(model.to_owned(), [0; COUNTS]);
        }
        if let Some([count, ..]) = self.models.get_mut(model) {
            *count = count.saturating_add(u64::from(rows));
        }
        true
    }

    /// Rows a second by model.
    fn rates(&mut self, now: Duration) -> BTreeMap<String, f64> {
        self.advance(now);
        let into = now.as_secs_f64() - (self.period * PERIOD.as_secs()) as f64;
        let counted = (COUNTS as f64 - 1.0).mul_add(PERIOD.as_secs_f64(), into).min(now.as_secs_f64());
        let of = |(model, counts): (&String, &[u64; COUNTS])| {
            (model.clone(), counts.iter().sum::<u64>() as f64 / counted.max(1.0))
        };
        self.models.iter().map(of).collect()
    }
}

/// Counts the requests of gateways; cheap to clone. A request that another picker passes on was counted there.
#[derive(Clone, Debug)]
pub struct Counter {
    started: Instant,
    demand: Arc<Mutex<Demand>>,
}

impl Counter {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), demand: Arc::default() }
    }

    fn demand(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A gateway asks for rows of a model.
    pub(crate) fn arrived(&self, model: Option<&str>, rows: u32) {
        let Some(model) = model else { return };
        if !self.demand().arrived(self.started.elapsed(), model, rows) {
            counter!("tessera_picker_uncounted_total").increment(1);
        }
    }

    pub(crate) fn models(&self) -> Vec<ModelDemand> {
        let rates = self.demand().rates(self.started.elapsed());
        rates.into_iter().map(|(model, rate)| ModelDemand { model, rate }).collect()
    }
}

/// Asks a picker for its demand: rows a second by model.
///
/// # Errors
/// The picker cannot be reached, or refuses.
pub async fn ask(address: &str) -> Result<BTreeMap<String, f64>, String> {
    let asking = async {
        let channel = follow::connect(address).await?;
        let answer = PickerClient::new(channel).demand(DemandRequest {}).await;
        let answer = answer.map_err(|status| follow::reason_of(&status))?.into_inner();
        Ok(answer.models.into_iter().map(|demand| (demand.model, demand.rate)).collect())
    };
    tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_rate_is_the_mean_of_the_last_minute() {
        let mut demand = Demand::default();
        for at in 0..100 {
            assert!(demand.arrived(MS(100 * at), "m", 2));
        }
        let rate = demand.rates(MS(10_000))["m"];
        assert!((rate - 20.0).abs() < 0.1, "200 rows in 10 s: {rate}");
        let rate = demand.rates(MS(40_000))["m"];
        assert!((rate - 5.0).abs() < 0.1, "200 rows in 40 s: {rate}");
        assert!(demand.rates(MS(80_000)).is_empty());
        assert_eq!(demand.models.len(), 0, "models without traffic are forgotten");
    }

    #[test]
    fn names_are_bounded() {
        let mut demand = Demand::default();
        for number in 0..MODELS_MAX {
            assert!(demand.arrived(MS(1), &number.to_string(), 1));
        }
        assert!(!demand.arrived(MS(1), "one more", 1));
        assert!(demand.arrived(MS(1), "7", 1));
        assert!(demand.arrived(MS(90_000), "one more", 1));
    }
}
