//! The arms: ways of sharing a GPU that are compared.

use std::sync::Arc;

use gpulet_core::interference::{CoLocated, Interference, Load, Runner};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_cuda::Backend;

use super::offer::Demands;
use crate::bench::{Bench, Stop};

/// Headroom of a plan over the traffic that it is made for, because interference is known only on average.
const HEADROOM: f64 = 1.05;
/// Range of loads for plans.
const LOADS: (f64, f64) = (0.01, 50.0);
/// Bisections of that range.
const HALVINGS: u32 = 12;

/// A way of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Gpulets as our planner places them, for the highest load that has a plan.
    Plan,
    /// One stream on the whole GPU, one batch at a time.
    TimeSharing,
    /// A stream per model, all on the whole GPU.
    Streams,
    /// A gpulet per model, all of the same size.
    Equal,
}

impl Arm {
    pub(super) const ALL: [Self; 4] = [Self::Plan, Self::TimeSharing, Self::Streams, Self::Equal];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::TimeSharing => "time_sharing",
            Self::Streams => "streams",
            Self::Equal => "equal_split",
        }
    }
}

/// A model on a gpulet.
pub(super) struct Slot {
    /// Index of the model.
    pub(super) model: usize,
    pub(super) rows_max: u32,
    /// Share of the model's requests, relative to the sum of all shares.
    pub(super) weight: f64,
}

/// A gpulet.
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) units: u32,
    /// Units at which the profile gives the time of its batches.
    pub(super) as_units: u32,
    pub(super) slots: Vec<Slot>,
}

/// Gpulets of one GPU.
pub(super) struct Arrangement {
    pub(super) backend: Backend,
    pub(super) places: Vec<Place>,
    /// Load that it was planned for; none if it does not depend on the load.
    pub(super) planned: Option<f64>,
}

impl Arrangement {
    /// `interference` is the model for the plan.
    pub(super) fn of(
        arm: Arm,
        bench: &Bench<'_>,
        demands: &Demands,
        interference: &Interference,
    ) -> Result<Self, Stop> {
        let whole = |models: Vec<usize>| Place {
            first: 0,
            units: 1,
            as_units: demands.units,
            slots: models.into_iter().map(|model| slot(demands, model)).collect(),
        };
        let all = 0..demands.models.len();
        match arm {
            Arm::TimeSharing => {
                Ok(Self { backend: Backend::CudaStream, places: vec![whole(all.collect())], planned: None })
            }
            Arm::Streams => Ok(Self {
                backend: Backend::CudaStream,
                places: all.map(|model| whole(vec![model])).collect(),
                planned: None,
            }),
            Arm::Equal => equal(demands),
            Arm::Plan => planned(bench, demands, interference),
        }
    }

    /// What is co-located with a gpulet; of each other gpulet the batch that is worst.
    pub(super) fn co_located(&self, own: usize, demands: &Demands) -> CoLocated {
        let load = |place: &Place, slot: &Slot| {
            let profile = &demands.models.get(slot.model)?.profile;
            Some(Load::of(&Runner { profile, batch: slot.rows_max, units: place.as_units }))
        };
        let others = self.places.iter().enumerate().filter(|(at, _)| *at != own);
        let loads: Vec<Vec<Load>> = others
            .map(|(_, place)| place.slots.iter().filter_map(|slot| load(place, slot)).collect())
            .collect();
        CoLocated::of(loads.iter().map(Vec::as_slice))
    }
}

fn slot(demands: &Demands, model: usize) -> Slot {
    let rows_max = demands.models.get(model).map_or(1, |demand| demand.rows_max);
    Slot { model, rows_max, weight: 1.0 }
}

fn equal(demands: &Demands) -> Result<Arrangement, Stop> {
    let count = u32::try_from(demands.models.len()).unwrap_or(u32::MAX).max(1);
    let units = demands.units / count;
    if units == 0 {
        return Err(Stop::Other(format!(
            "expected a unit for each of {count} models, the GPU has {}",
            demands.units
        )));
    }
    let places = (0..demands.models.len()).zip(0_u32..).map(|(model, number)| Place {
        first: number * units,
        units,
        as_units: units,
        slots: vec![slot(demands, model)],
    });
    Ok(Arrangement { backend: Backend::CudaGreen, places: places.collect(), planned: None })
}

/// The plan for the highest load that has one.
fn planned(bench: &Bench<'_>, demands: &Demands, interference: &Interference) -> Result<Arrangement, Stop> {
    let (mut low, mut high) = LOADS;
    let refused = |error: String| Stop::Other(format!("no plan, even at a load of {low}: {error}"));
    let mut plan = place(bench, demands, low, interference).map_err(refused)?;
    for _ in 0..HALVINGS {
        // Geometric, because loads differ by orders of magnitude between mixes.
        let middle = (low * high).sqrt();
        match place(bench, demands, middle, interference) {
            Ok(found) => (plan, low) = (found, middle),
            Err(_) => high = middle,
        }
    }
    let places = plan.gpulets.iter().map(|gpulet| Place {
        first: gpulet.first_unit,
        units: gpulet.units,
        as_units: gpulet.units,
        slots: gpulet
            .slots
            .iter()
            .filter_map(|slot| {
                let model = demands.models.iter().position(|demand| demand.name == slot.workload)?;
                Some(Slot { model, rows_max: slot.batch, weight: slot.rate.max(1e-9) })
            })
            .collect(),
    });
    Ok(Arrangement { backend: Backend::CudaGreen, places: places.collect(), planned: Some(low) })
}

fn place(
    bench: &Bench<'_>,
    demands: &Demands,
    load: f64,
    interference: &Interference,
) -> Result<Plan, String> {
    let units = demands.units;
    let device_type = DeviceType {
        name: bench.device_type(units),
        units,
        sizes: (1..=units).collect(),
        gpulets_max: units,
        base_bytes: 0,
        gpulet_bytes: 0,
    };
    let device = Device {
        name: format!("gpu{}", bench.found.ordinal).into(),
        device_type: Arc::new(device_type),
        memory_bytes: bench.found.memory_bytes / 10 * 9,
        fault_domain: "gpu".to_owned(),
        cost: 1.0,
    };
    let workloads = demands.models.iter().map(|demand| Workload {
        name: demand.name.clone(),
        model: demand.name.clone(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: demand.slo.as_secs_f64() * 1e6,
        rate: demand.rate * load,
        headroom: HEADROOM,
        replicas_min: 1,
        batch_max: demand.profile.batches().1.max(1),
    });
    let profiles = demands.models.iter().map(|demand| demand.profile.clone()).collect();
    let problem = Problem::new(vec![device], workloads.collect(), profiles, interference.clone());
    let problem = problem.map_err(|error| error.to_string())?;
    Policy::default().place(&problem).map_err(|infeasible| infeasible.to_string())
}
