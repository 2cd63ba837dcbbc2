//! Measured times of the public data sets.

use std::collections::BTreeMap;

use estimator::{Known, Network, Place, Timing};

use super::Failed;
use super::networks::network;

/// A model with its measured times.
pub struct Measured {
    pub name: String,
    pub network: Network,
    pub timings: Vec<Timing>,
}

impl Measured {
    pub fn known(&self) -> Known {
        Known { network: self.network.clone(), timings: self.timings.clone() }
    }

    pub fn places(&self) -> Vec<Place> {
        self.timings.iter().map(|timing| timing.place).collect()
    }

    /// Measured time of a place, microseconds.
    pub fn time_us(&self, place: Place) -> Option<f64> {
        self.timings.iter().find(|timing| timing.place == place).map(|timing| timing.time_us)
    }
}

/// A table of times.
pub struct DataSet {
    /// File, in the folder of data.
    pub file: &'static str,
    /// What was measured.
    pub about: &'static str,
    /// Column of the time, and microseconds in its unit.
    time: (usize, f64),
}

pub const DATA_SETS: [DataSet; 2] = [
    DataSet {
        file: "gpulet-thirdparty/inference.csv",
        about: "A GPU that the source does not name, probably with PyTorch (github.com/0909wlgur/Gpulet, commit 8015c3d)",
        time: (6, 1e6),
    },
    DataSet {
        file: "igniter/v100_latency.csv",
        about: "NVIDIA V100 with TensorRT (iGniter, TPDS 2023; github.com/icloud-ecnu/igniter, commit b1ff2ab)",
        time: (3, 1e3),
    },
];

impl DataSet {
    /// Reads the lines: model, batch, percent of the device, and the time in its column.
    pub fn read(&self, text: &str) -> Result<Vec<Measured>, Failed> {
        let mut models: BTreeMap<&str, Vec<Timing>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with("model,")) {
            let fields: Vec<&str> = line.split(',').collect();
            let field = |at: usize| {
                fields
                    .get(at)
                    .copied()
                    .ok_or_else(|| format!("{}: line `{line}`: field {at} is missing", self.file))
            };
            let percent: f64 = field(2)?.parse()?;
            let time: f64 = field(self.time.0)?.parse()?;
            let place = Place { batch: field(1)?.parse()?, share: percent / 100.0 };
            models.entry(field(0)?).or_default().push(Timing { place, time_us: time * self.time.1 });
        }
        let with_network = |(name, timings): (&str, Vec<Timing>)| {
            let network =
                network(name).ok_or_else(|| format!("{}: model `{name}` is not known", self.file))?;
            Ok(Measured { name: name.to_owned(), network, timings })
        };
        models.into_iter().map(with_network).collect()
    }
}
