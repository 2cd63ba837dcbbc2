//! Who runs where: the ways of sharing a GPU that are compared.

use std::sync::Arc;

use gpulet_core::interference::{Interference, Load, Neighbours, Runner};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, DeviceKind, Problem, Workload};
use gpulet_cuda::Backend;

use super::offer::Demands;
use crate::bench::{Bench, Stop};

/// Traffic that a plan has room for over what it is made for: what neighbours do is known in the mean.
const HEAD_ROOM: f64 = 1.05;
/// Loads between which a plan is looked for.
const LOADS: (f64, f64) = (0.01, 50.0);
/// Halvings of that.
const HALVINGS: u32 = 12;

/// A way of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Gpulets as our planner lays them out for the highest load that it finds a plan for.
    Plan,
    /// One stream on the whole GPU, models by turns.
    Turns,
    /// A stream for each model, all on the whole GPU.
    Streams,
    /// A gpulet for each model, all of the same size.
    Equal,
}

impl Arm {
    pub(super) const ALL: [Self; 4] = [Self::Plan, Self::Turns, Self::Streams, Self::Equal];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Turns => "time_sharing",
            Self::Streams => "streams",
            Self::Equal => "equal_split",
        }
    }
}

/// A model on a gpulet.
pub(super) struct Turn {
    /// Number of the model.
    pub(super) model: usize,
    pub(super) rows_max: u32,
    /// Part of the model's requests that come here, of any sum.
    pub(super) weight: f64,
}

/// A gpulet.
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) units: u32,
    /// Units whose profile says how long its batches take.
    pub(super) as_units: u32,
    pub(super) turns: Vec<Turn>,
}

/// Gpulets of one GPU.
pub(super) struct Arrangement {
    pub(super) backend: Backend,
    pub(super) places: Vec<Place>,
    /// Load that it was made for; none where load made no difference.
    pub(super) planned: Option<f64>,
}

impl Arrangement {
    /// `interference` is what the plan believes of neighbours.
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
            turns: models.into_iter().map(|model| turn(demands, model)).collect(),
        };
        let all = 0..demands.models.len();
        match arm {
            Arm::Turns => Ok(Self {
                backend: Backend::CudaStream,
                places: vec![whole(all.collect())],
                planned: None,
            }),
            Arm::Streams => Ok(Self {
                backend: Backend::CudaStream,
                places: all.map(|model| whole(vec![model])).collect(),
                planned: None,
            }),
            Arm::Equal => equal(demands),
            Arm::Plan => planned(bench, demands, interference),
        }
    }

    /// What runs beside a gpulet, each neighbour whichever of its largest batches is worst.
    pub(super) fn beside(&self, own: usize, demands: &Demands) -> Neighbours {
        let load = |place: &Place, turn: &Turn| {
            let profile = &demands.models.get(turn.model)?.profile;
            Some(Load::of(&Runner { profile, batch: turn.rows_max, units: place.as_units }))
        };
        let others = self.places.iter().enumerate().filter(|(at, _)| *at != own);
        let loads: Vec<Vec<Load>> = others
            .map(|(_, place)| place.turns.iter().filter_map(|turn| load(place, turn)).collect())
            .collect();
        Neighbours::of(loads.iter().map(Vec::as_slice))
    }
}

fn turn(demands: &Demands, model: usize) -> Turn {
    let rows_max = demands.models.get(model).map_or(1, |demand| demand.rows_max);
    Turn { model, rows_max, weight: 1.0 }
}

fn equal(demands: &Demands) -> Result<Arrangement, Stop> {
    let count = u32::try_from(demands.models.len()).unwrap_or(u32::MAX).max(1);
    let units = demands.units / count;
    if units == 0 {
        return Err(Stop::Other(format!("expected a unit for each of {count} models, the GPU has {}", demands.units)));
    }
    let places = (0..demands.models.len()).zip(0_u32..).map(|(model, number)| Place {
        first: number * units,
        units,
        as_units: units,
        turns: vec![turn(demands, model)],
    });
    Ok(Arrangement { backend: Backend::CudaGreen, places: places.collect(), planned: None })
}

/// The plan for the highest load that there is one for.
fn planned(
    bench: &Bench<'_>,
    demands: &Demands,
    interference: &Interference,
) -> Result<Arrangement, Stop> {
    let (mut low, mut high) = LOADS;
    let refused = |error: String| Stop::Other(format!("no plan even at a load of {low}: {error}"));
    let mut plan = place(bench, demands, low, interference).map_err(refused)?;
    for _ in 0..HALVINGS {
        // By factors, not by differences: loads differ by orders of magnitude from model mix to model mix.
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
        turns: gpulet.slots.iter().filter_map(|slot| {
            let model = demands.models.iter().position(|demand| demand.name == slot.workload)?;
            Some(Turn { model, rows_max: slot.batch, weight: slot.rate.max(1e-9) })
        }).collect(),
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
    let kind = DeviceKind {
        name: bench.found.name.clone(),
        units,
        sizes: (1..=units).collect(),
        gpulets_max: units,
        base_bytes: 0,
        gpulet_bytes: 0,
    };
    let device = Device {
        name: format!("gpu{}", bench.found.ordinal),
        kind: Arc::new(kind),
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
        head_room: HEAD_ROOM,
        replicas_min: 1,
        batch_max: demand.profile.batches().1.max(1),
    });
    let profiles = demands.models.iter().map(|demand| demand.profile.clone()).collect();
    let problem = Problem::new(vec![device], workloads.collect(), profiles, interference.clone());
    let problem = problem.map_err(|error| error.to_string())?;
    Policy::default().place(&problem).map_err(|infeasible| infeasible.to_string())
}
