//! Measured times of the data sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use estimator::{Known, Network, OperatorClass, Place, Timing, Work};
use gpulet_core::profile::Profile;

use super::Failed;
use super::families::{family_of_network, family_of_zoo};
use super::networks::network;

/// A model with its measured times.
#[derive(Clone)]
pub struct Measured {
    pub name: String,
    /// Models of one family are left out together.
    pub family: &'static str,
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

/// How a file holds its times.
enum Layout {
    /// A table: column of the time, and microseconds in its unit. Networks come from papers.
    Table(usize, f64),
    /// Profiles of `tessera profile`, with the work of the networks.
    Profiles,
}

/// A file of times.
pub struct DataSet {
    /// File, in the folder of public data, or in the project if it is our own.
    pub file: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// What was measured.
    pub about: &'static str,
    layout: Layout,
}

pub const DATA_SETS: [DataSet; 3] = [
    DataSet {
        file: "gpulet-thirdparty/inference.csv",
        name: "gpulet-thirdparty",
        about: "A GPU that the source does not name, probably with PyTorch (github.com/0909wlgur/Gpulet, commit 8015c3d)",
        layout: Layout::Table(6, 1e6),
    },
    DataSet {
        file: "igniter/v100_latency.csv",
        name: "igniter",
        about: "NVIDIA V100 with TensorRT (iGniter, TPDS 2023; github.com/icloud-ecnu/igniter, commit b1ff2ab)",
        layout: Layout::Table(3, 1e3),
    },
    DataSet {
        file: "gpulet/estimator/data/zoo.jsonl",
        name: "zoo",
        about: "Two cores of an AMD EPYC with ONNX Runtime, measured with `tessera profile` (gpulet/estimator/data/SOURCE.md)",
        layout: Layout::Profiles,
    },
];

impl DataSet {
    /// Where the file is: our own measurements in the project, others in the folder of public data.
    pub fn path(&self, project: &Path, public: &Path) -> PathBuf {
        match self.layout {
            Layout::Table(..) => public.join(self.file),
            Layout::Profiles => project.join(self.file),
        }
    }

    /// Whether it was measured by us, so that models of several families are in it.
    pub fn is_own(&self) -> bool {
        matches!(self.layout, Layout::Profiles)
    }

    /// Reads its models.
    pub fn read(&self, text: &str) -> Result<Vec<Measured>, Failed> {
        match self.layout {
            Layout::Table(column, unit_us) => self.table(text, (column, unit_us)),
            Layout::Profiles => Profile::read(text)?.iter().map(of_profile).collect(),
        }
    }

    /// Reads the lines: model, batch, percent of the device, and the time in its column.
    fn table(&self, text: &str, (column, unit_us): (usize, f64)) -> Result<Vec<Measured>, Failed> {
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
            let time: f64 = field(column)?.parse()?;
            let place = Place { batch: field(1)?.parse()?, share: percent / 100.0 };
            models.entry(field(0)?).or_default().push(Timing { place, time_us: time * unit_us });
        }
        let with_network = |(name, timings): (&str, Vec<Timing>)| {
            let network =
                network(name).ok_or_else(|| format!("{}: model `{name}` is not known", self.file))?;
            Ok(Measured { name: name.to_owned(), family: family_of_network(name), network, timings })
        };
        models.into_iter().map(with_network).collect()
    }
}

fn of_profile(profile: &Profile) -> Result<Measured, Failed> {
    let classes = profile.work().iter().filter_map(|line| {
        let work = Work {
            operators: line.operators,
            macs: line.macs,
            weight_bytes: line.weight_bytes,
            activation_bytes: line.activation_bytes,
            path: line.path,
        };
        Some((OperatorClass::named(&line.class)?, work))
    });
    let total = f64::from(profile.units_total());
    let timing = |cell: &gpulet_core::profile::Cell| Timing {
        place: Place { batch: cell.batch, share: f64::from(cell.units) / total },
        time_us: cell.p50_us,
    };
    let name = profile.model().to_owned();
    let family = family_of_zoo(&name).ok_or_else(|| format!("zoo: model `{name}` has no family"))?;
    let (network, timings) = (Network::of_work(classes), profile.cells().iter().map(timing).collect());
    Ok(Measured { name, family, network, timings })
}
