//! What the measured models of this machine say about the times of another one.

use std::collections::BTreeMap;

use estimator::{ArenaShare, Estimator, Known, Network, Operator, OperatorClass, Place, Timing, Work};
use gpulet_core::profile::{ArenaLine, Cell, Header, Line, Profile, RowShape, WorkLine};
use models::{Loader, ModelFiles, Operators};

use super::machine::DEVICE;
use super::subjects::Subject;

/// 95th and 99th percentile as multiples of the median, where no measured cell says them.
const TAILS: (f64, f64) = (1.1, 1.2);

/// Measured models that are comparable with one that is to be predicted, and what they say.
#[derive(Debug)]
pub struct KnownModels {
    /// Names of the models.
    names: Vec<String>,
    engine: String,
    pub estimator: Estimator,
    /// Usual 95th and 99th percentile as multiples of the median.
    tails: (f64, f64),
    /// Working memory, as a part of the activations.
    arenas: ArenaShare,
}

impl KnownModels {
    /// Learns from the profiles with measured cells that were made as `like` is: on this machine, with the same engine. The profile of the
    /// same model does not count. `before` is used if it has learned from the same models.
    pub fn of(profiles: &[Profile], like: &Header, machine: &str, before: Option<Self>) -> Self {
        let is_alike = |profile: &&Profile| {
            let header = profile.header();
            header.device == DEVICE
                && header.engine == like.engine
                && header.units_total == like.units_total
                && header.model != like.model
                && header.note.starts_with(machine)
                && !profile.work().is_empty()
                && cells(profile).next().is_some()
        };
        // Of several profiles of a model, the last counts.
        let alike: BTreeMap<&str, &Profile> =
            profiles.iter().filter(is_alike).map(|profile| (profile.model(), profile)).collect();
        let names: Vec<String> = alike.keys().map(|name| (*name).to_owned()).collect();
        if let Some(before) = before.filter(|before| before.names == names && before.engine == like.engine) {
            return before;
        }
        let known: Vec<Known> = alike.values().map(|profile| known(profile)).collect();
        let tails = tails(alike.values().flat_map(|profile| cells(profile))).unwrap_or(TAILS);
        let arenas = alike.values().zip(&known).flat_map(|(profile, known)| {
            let lines = profile.lines().into_iter();
            lines.filter_map(|line| match line {
                Line::Arena(ArenaLine { batch, bytes }) => Some((&known.network, batch, bytes)),
                _ => None,
            })
        });
        let arenas = ArenaShare::of(arenas);
        Self { names, engine: like.engine.clone(), estimator: Estimator::new(&known), tails, arenas }
    }

    /// Working memory of a model that never ran, for batches of these sizes: as much of its activations as any known model took.
    pub fn arena_lines<'a>(
        &'a self,
        work: &'a Network,
        batches: &'a [u32],
    ) -> impl Iterator<Item = Line> + use<'a> {
        let line =
            |batch: &u32| Line::Arena(ArenaLine { batch: *batch, bytes: self.arenas.bytes(work, *batch) });
        batches.iter().map(line)
    }

    /// Number of the models.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The usual percentiles of a model: of its own measured cells, or of all.
    pub fn tails_of<'a>(&self, own: impl Iterator<Item = &'a Cell>) -> (f64, f64) {
        tails(own).unwrap_or(self.tails)
    }
}

/// Measured cells of a profile.
fn cells(profile: &Profile) -> impl Iterator<Item = &Cell> {
    profile.cells().iter().filter(|cell| cell.predicted.is_none())
}

/// Measured cells among lines; of those of the same batch and cores the last.
pub fn measured(lines: &[Line]) -> Vec<Cell> {
    let mut found: BTreeMap<(u32, u32), &Cell> = BTreeMap::new();
    for line in lines {
        if let Line::Cell(cell) = line {
            found.insert((cell.units, cell.batch), cell);
        }
    }
    found.into_values().filter(|cell| cell.predicted.is_none()).cloned().collect()
}

/// A batch on a number of cores, as the estimator has it.
pub fn place(batch: u32, units: u32, units_total: u32) -> Place {
    Place { batch, share: f64::from(units) / f64::from(units_total.max(1)) }
}

/// A measured cell, as the estimator has it.
pub fn timing(cell: &Cell, units_total: u32) -> Timing {
    Timing { place: place(cell.batch, cell.units, units_total), time_us: cell.p50_us }
}

fn known(profile: &Profile) -> Known {
    let classes = profile.work().iter().filter_map(|line| {
        let WorkLine { class, operators, macs, weight_bytes, activation_bytes, path } = line;
        let work = Work {
            operators: *operators,
            macs: *macs,
            weight_bytes: *weight_bytes,
            activation_bytes: *activation_bytes,
            path: *path,
        };
        Some((OperatorClass::named(class)?, work))
    });
    Known {
        network: Network::of_work(classes),
        timings: cells(profile).map(|cell| timing(cell, profile.units_total())).collect(),
    }
}

/// Medians of both percentiles over cells, as multiples of their medians; `None` without cells.
fn tails<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<(f64, f64)> {
    let (mut p95, mut p99): (Vec<f64>, Vec<f64>) =
        cells.map(|cell| (cell.p95_us / cell.p50_us, cell.p99_us / cell.p50_us)).unzip();
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let (p95, p99) = (middle(&mut p95)?, middle(&mut p99)?);
    Some((p95, p99.max(p95)))
}

/// The operators of a model at the shapes that are measured.
pub fn operators(subject: &Subject, files: &ModelFiles, loader: &Loader) -> Result<Operators, String> {
    let rows = subject.shapes.first().map(|shape: &RowShape| shape.inputs.clone()).unwrap_or_default();
    models::operators(loader, files, &rows, subject.config.max_batch != Some(0))
}

/// Operators as a network.
pub fn network(operators: &Operators) -> Network {
    Network::new(operators.all.iter().map(|operator| Operator {
        class: OperatorClass::of_onnx(&operator.operator, operator.is_depthwise),
        macs: operator.macs,
        weight_bytes: operator.weight_bytes,
        activation_bytes: operator.activation_bytes,
        width: operator.width,
    }))
}

/// A network as lines of a profile: classes without operators are left out.
pub fn work_lines(network: &Network) -> Vec<Line> {
    let classes = OperatorClass::ALL.into_iter().zip(network.work());
    let used = classes.filter(|(_, work)| work.operators > 0.0);
    used.map(|(class, work)| {
        Line::Work(WorkLine {
            class: class.name().to_owned(),
            operators: work.operators,
            macs: work.macs,
            weight_bytes: work.weight_bytes,
            activation_bytes: work.activation_bytes,
            path: work.path,
        })
    })
    .collect()
}
