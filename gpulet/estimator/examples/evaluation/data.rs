//! Measured times of the data sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use estimator::{Known, Network, OperatorClass, Place, Timing, Work};
use gpulet_core::profile::{ArenaLine, Line, Outside, Profile, Quantile};

use super::Failed;
use super::families::{family_of_network, family_of_zoo};
use super::networks::network;

/// Units of a device whose shares are given in percent.
const PERCENT: u32 = 100;

/// A model with its measured times.
#[derive(Clone)]
pub struct Measured {
    pub name: String,
    /// Models of one family are left out together.
    pub family: &'static str,
    pub network: Network,
    pub timings: Vec<Timing>,
    /// Units of the whole device.
    pub units_total: u32,
    /// Working memory of batches, bytes.
    pub arenas: Vec<(u32, u64)>,
}

impl Measured {
    /// Units of a share.
    pub fn units(&self, place: Place) -> u32 {
        (place.share * f64::from(self.units_total)).round() as u32
    }

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
    /// Profiles of emulated devices, which compute the time of any cell. Networks come from papers.
    Emulated,
}

/// Batches of an emulated device.
const BATCHES: [u32; 4] = [1, 4, 16, 32];

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

pub const DATA_SETS: [DataSet; 4] = [
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
        file: "gpulet/core/examples/igniter-v100.jsonl",
        name: "emulated",
        about: "An emulated device with 40 shares: the times that iGniter's formulas give for its V100, with batches of 1, 4, 16 and 32",
        layout: Layout::Emulated,
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
            Layout::Profiles | Layout::Emulated => project.join(self.file),
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
            Layout::Emulated => Profile::read(text)?.iter().map(of_formulas).collect(),
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
            let place = Place { batch: field(1)?.parse()?, share: percent / f64::from(PERCENT) };
            models.entry(field(0)?).or_default().push(Timing { place, time_us: time * unit_us });
        }
        models.into_iter().map(|(name, timings)| with_network(name, timings, PERCENT)).collect()
    }
}

fn with_network(name: &str, timings: Vec<Timing>, units_total: u32) -> Result<Measured, Failed> {
    let network = network(name).ok_or_else(|| format!("model `{name}` is not known"))?;
    let family = family_of_network(name);
    Ok(Measured { name: name.to_owned(), family, network, timings, units_total, arenas: Vec::new() })
}

fn of_formulas(profile: &Profile) -> Result<Measured, Failed> {
    let units_total = profile.units_total();
    let cells = BATCHES.into_iter().flat_map(|batch| (1..=units_total).map(move |units| (batch, units)));
    let timing = |(batch, units): (u32, u32)| {
        let place = Place { batch, share: f64::from(units) / f64::from(units_total) };
        Ok(Timing { place, time_us: profile.latency_us(Quantile::P50, batch, units)? })
    };
    with_network(profile.model(), cells.map(timing).collect::<Result<_, Outside>>()?, units_total)
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
    let arenas = profile.lines().into_iter().filter_map(|line| match line {
        Line::Arena(ArenaLine { batch, bytes }) => Some((batch, bytes)),
        _ => None,
    });
    let (units_total, arenas) = (profile.units_total(), arenas.collect());
    Ok(Measured { name, family, network, timings, units_total, arenas })
}
