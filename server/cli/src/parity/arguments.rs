//! The flags of `tessera parity`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use workload::{Model, Workload};

use crate::load::arguments::ClientArgs;
use crate::simulate;

/// Options of `parity`.
#[derive(Args, Clone, Debug)]
pub struct ParityArgs {
    /// Workload file in TOML (loadtest/workload/README.md).
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: PathBuf,
    /// Serve the models of this folder, and measure their batch times. Variants of families have the qualities that are
    /// stored there. Default: synthetic models with the batch times of the workload's profiles. The workload must not
    /// have more lanes than there are cores.
    #[arg(long, short, value_name = "DIR")]
    pub repository: Option<PathBuf>,
    /// Engine of real models: auto, tract or ort.
    #[arg(long, value_name = "ENGINE", requires = "repository", default_value = "auto")]
    pub engine: String,
    /// A further setting of the server. The simulator does not know it. May be repeated.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Protocol of the requests.
    #[arg(long, value_enum, default_value_t = Wire::Http)]
    pub protocol: Wire,
    /// Batching policy of all models, in the simulator and on the server.
    #[arg(long, value_name = "NAME", default_value = simulate::DEFAULT_POLICY)]
    pub policy: String,
    /// Multiply the workload's rate by this factor.
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,
    /// Number of lanes. Default: the workload's.
    #[arg(long, value_name = "NUMBER")]
    pub lanes: Option<u32>,
    /// Options of the client.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl ParityArgs {
    /// What the server calls a model of the workload.
    pub fn served<'a>(&'a self, model: &'a Model) -> &'a str {
        let mut maps = self.client.maps.iter();
        let mapped = maps.find(|(name, _)| *name == model.name || *name == model.group);
        mapped.map_or(&model.name, |(_, name)| name)
    }

    /// What the server calls the models of a workload, where that differs.
    pub fn names(&self, workload: &Workload) -> BTreeMap<String, String> {
        let all = workload.models.iter().map(|model| (model.name.clone(), self.served(model).to_owned()));
        all.filter(|(own, served)| own != served).collect()
    }
}

/// Protocol of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wire {
    /// REST over HTTP/1.1.
    Http,
    /// REST over HTTP/2.
    Http2,
    /// gRPC, with binary tensors.
    Grpc,
}

/// Examples and exit codes, below the options.
pub const PARITY_EXAMPLES: &str = "\
Examples:
  tessera parity loadtest/parity/ten-models.toml
  tessera parity loadtest/parity/one-model.toml --protocol grpc --rate-scale 1.5
  tessera parity loadtest/parity/overload.toml --policy shepherd
  tessera parity mine.toml --repository ./models --map resnet=resnet50 --set devices.isolation=process

Starts a server of its own on free ports and stops it at the end. Goals: goodput within 2 %, p50 within 5 %,
p99 within 10 %.
Exit code 0: within the goals. 1: failure. 2: wrong usage. 3: outside the goals.";
