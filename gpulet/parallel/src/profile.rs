//! Measured stage times of a model by layout.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ParallelError, positive, within};

/// How a group of devices runs a model: pipeline stages, each on several devices that share its operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Layout {
    /// Devices that share the operators of one stage (tensor parallelism), at least 1.
    pub operators: usize,
    /// Pipeline stages, at least 1.
    pub stages: usize,
}

impl Layout {
    /// One device.
    pub const SINGLE: Self = Self { operators: 1, stages: 1 };

    /// Devices of a group.
    pub fn devices(self) -> usize {
        self.operators * self.stages
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "op{}:pp{}", self.operators, self.stages)
    }
}

/// Stages of a model under one layout.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProfile {
    /// Seconds that a request takes in each stage.
    pub times_s: Vec<f64>,
    /// Memory that the largest stage takes on each of its devices, in bytes.
    pub memory_bytes: u64,
}

/// Measured stage times of a model by layout. One device is always among them.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProfile {
    /// The name in reports.
    pub name: String,
    layouts: BTreeMap<Layout, StageProfile>,
}

#[derive(Deserialize)]
struct Row {
    operator_parallel: usize,
    pipeline_stages: usize,
    batch: usize,
    stage: usize,
    latency_s: f64,
}

impl ModelProfile {
    /// A profile from stage times by layout. `weights_bytes` are divided evenly over the devices of a layout.
    pub fn new(
        name: &str,
        times_s: BTreeMap<Layout, Vec<f64>>,
        weights_bytes: u64,
    ) -> Result<Self, ParallelError> {
        if !times_s.contains_key(&Layout::SINGLE) {
            return Err(ParallelError::invalid("layouts", "times of one device (op1:pp1)", "none"));
        }
        let mut layouts = BTreeMap::new();
        for (layout, times_s) in times_s {
            within("operator_parallel", layout.operators, 1, 1_024)?;
            within("pipeline_stages", layout.stages, 1, 1_024)?;
            if times_s.len() != layout.stages {
                let expected = format!("{} stages", layout.stages);
                return Err(ParallelError::invalid(format!("layouts.{layout}"), expected, times_s.len()));
            }
            for (stage, time) in times_s.iter().enumerate() {
                positive(format!("layouts.{layout}.{stage}.latency_s"), *time)?;
            }
            let devices = u64::try_from(layout.devices()).unwrap_or(u64::MAX);
            layouts.insert(layout, StageProfile { times_s, memory_bytes: weights_bytes.div_ceil(devices) });
        }
        Ok(Self { name: name.to_owned(), layouts })
    }

    /// Reads a table with the columns `operator_parallel,pipeline_stages,batch,stage,latency_s`; only batches of 1 are used.
    pub fn parse(name: &str, text: &str, weights_bytes: u64) -> Result<Self, ParallelError> {
        let mut rows: BTreeMap<Layout, BTreeMap<usize, f64>> = BTreeMap::new();
        for row in csv::Reader::from_reader(text.as_bytes()).deserialize() {
            let columns = "a table with the columns operator_parallel,pipeline_stages,batch,stage,latency_s";
            let row: Row = row.map_err(|error| ParallelError::invalid("profile", columns, error))?;
            if row.batch == 1 {
                let layout = Layout { operators: row.operator_parallel, stages: row.pipeline_stages };
                rows.entry(layout).or_default().insert(row.stage, row.latency_s);
            }
        }
        for (layout, stages) in &rows {
            if stages.keys().copied().ne(0..layout.stages) {
                let numbers: Vec<String> = stages.keys().map(usize::to_string).collect();
                let expected = format!("the stages 0 to {}", layout.stages.saturating_sub(1));
                return Err(ParallelError::invalid(
                    format!("layouts.{layout}"),
                    expected,
                    numbers.join(", "),
                ));
            }
        }
        let times = rows.into_iter().map(|(layout, stages)| (layout, stages.into_values().collect()));
        Self::new(name, times.collect(), weights_bytes)
    }

    /// The same profile with all times multiplied, for a larger or smaller model of the same structure.
    pub fn scaled(&self, factor: f64) -> Result<Self, ParallelError> {
        positive("latency_scale", factor)?;
        let mut scaled = self.clone();
        for stages in scaled.layouts.values_mut() {
            for time in &mut stages.times_s {
                *time *= factor;
            }
        }
        Ok(scaled)
    }

    /// The same profile without layouts that have several stages and several devices a stage. None of AlpaServe's published
    /// placements has such a layout.
    pub fn without_mixed(mut self) -> Self {
        self.layouts.retain(|layout, _| layout.operators == 1 || layout.stages == 1);
        self
    }

    /// Stages under a layout. `None` if it was not measured.
    pub fn stages(&self, layout: Layout) -> Option<&StageProfile> {
        self.layouts.get(&layout)
    }

    /// The layouts that were measured.
    pub fn layouts(&self) -> impl Iterator<Item = (Layout, &StageProfile)> {
        self.layouts.iter().map(|(layout, stages)| (*layout, stages))
    }

    /// Seconds of a request on one device.
    pub fn single_s(&self) -> f64 {
        self.stages(Layout::SINGLE).map_or(0.0, |stages| stages.times_s.iter().sum())
    }
}
