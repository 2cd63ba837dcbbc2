//! What models that share lanes need of them: the state behind [`Chooses`](super::Chooses).

use super::Policy;
use crate::Nanos;

/// A model without a finished batch for this long is silent: its demand no longer counts.
const SILENCE: Nanos = Nanos::from_millis(5_000);

/// What a model needs of its lanes, so that policies know their share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Rows of the batches that it aims at. Models differ, so it is 0 in a sum.
    pub target_batch: f64,
    /// Such batches a second.
    pub batches: f64,
    /// Lanes that they keep busy.
    pub lanes: f64,
    /// The same, if they are done within the shortest objective seen on their lanes; else zero.
    pub short_lanes: f64,
    /// Rows a second of the models that `short_lanes` counts.
    pub short_rate: f64,
}

/// The part of its pool's demand that is one model's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    demand: Demand,
    /// When the model's last batch was done.
    at: Nanos,
}

impl Counted {
    fn is_some(&self) -> bool {
        self.demand != Demand::default()
    }
}

/// Demand of all models of a pool, and the objectives and batch times seen there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PoolDemand {
    sum: Demand,
    tightest: Nanos,
    /// Smoothed expected batch time in nanoseconds.
    mean_time: u64,
}

impl Default for PoolDemand {
    fn default() -> Self {
        Self { sum: Demand::default(), tightest: Nanos::NEVER, mean_time: 0 }
    }
}

impl PoolDemand {
    /// Of lanes that take over models of this pool: the batch times seen here are the best estimate for them.
    pub(crate) fn of_heirs(&self) -> Self {
        Self { mean_time: self.mean_time, ..Self::default() }
    }

    /// Sum of the models' demands.
    pub(crate) fn sum(&self) -> Demand {
        self.sum
    }

    /// The shortest objective seen recently; `NEVER` before the first.
    pub(crate) fn tightest(&self) -> Nanos {
        self.tightest
    }

    /// Mean time of the last batches; zero before the first.
    pub(crate) fn mean_time(&self) -> Nanos {
        Nanos(self.mean_time)
    }

    /// A batch of this expected time was started.
    pub(crate) fn started(&mut self, time: Nanos) {
        let before = if self.mean_time == 0 { time.0 } else { self.mean_time };
        self.mean_time = before - before / 32 + time.0 / 32;
    }

    /// A batch of a model was done. `slo` is the objective of its first request, if that had one.
    pub(crate) fn learned(&mut self, now: Nanos, policy: &Policy, model: &mut Counted, slo: Option<Nanos>) {
        let demand = policy.demand();
        self.replace(model.demand, demand);
        *model = Counted { demand, at: now };
        if let Some(slo) = slo {
            // Objectives that are no longer seen fade.
            let faded = self.tightest.after(Nanos(self.tightest.0 / 4_096));
            self.tightest = faded.min(slo);
        }
    }

    /// A model that was counted elsewhere gets these lanes.
    pub(crate) fn joined(&mut self, model: Counted, slo: Nanos) {
        self.replace(Demand::default(), model.demand);
        if model.is_some() {
            self.tightest = self.tightest.min(slo);
        }
    }

    /// A model no longer has these lanes.
    pub(crate) fn left(&mut self, model: Counted) {
        self.replace(model.demand, Demand::default());
    }

    /// Takes out the demand of a model without recent batches, so that its objective no longer affects other models.
    /// False if it is not silent.
    pub(crate) fn silenced(&mut self, now: Nanos, model: &mut Counted) -> bool {
        let silent = now.since(model.at) > SILENCE && model.is_some();
        if silent {
            self.left(*model);
            model.demand = Demand::default();
        }
        silent
    }

    /// Sets the shortest objective to that of the models with demand.
    pub(crate) fn retighten(&mut self, models: impl Iterator<Item = (Counted, Nanos)>) {
        let slos = models.filter(|(model, _)| model.is_some()).map(|(_, slo)| slo);
        self.tightest = slos.min().unwrap_or(Nanos::NEVER);
    }

    /// Replaces a model's part of the sum.
    fn replace(&mut self, before: Demand, now: Demand) {
        let sum = &mut self.sum;
        sum.batches = (sum.batches - before.batches + now.batches).max(0.0);
        sum.short_rate = (sum.short_rate - before.short_rate + now.short_rate).max(0.0);
        sum.lanes = (sum.lanes - before.lanes + now.lanes).max(0.0);
        sum.short_lanes = (sum.short_lanes - before.short_lanes + now.short_lanes).max(0.0);
    }
}

/// When silent models are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence(Nanos);

impl Silence {
    /// Whether the search is due. If so, the next one is a quarter of [`SILENCE`] later.
    pub(crate) fn is_due(&mut self, now: Nanos) -> bool {
        let due = self.0 <= now;
        if due {
            self.0 = now.after(Nanos(SILENCE.0 / 4));
        }
        due
    }
}
