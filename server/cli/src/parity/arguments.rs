//! The flags of `tessera parity`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::load::arguments::ClientArgs;

/// Options of `parity`.
#[derive(Args, Clone, Debug)]
pub struct ParityArgs {
    /// What is simulated and sent: a TOML file (loadtest/workload/README.md).
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: PathBuf,
    /// Serve the models of this folder, and measure how long their batches take, instead of synthetic models that
    /// take as long as the workload's profiles say. The workload must ask for no more lanes than there are cores.
    #[arg(long, short, value_name = "DIR")]
    pub repository: Option<PathBuf>,
    /// Engine of real models: auto, tract or ort.
    #[arg(long, value_name = "ENGINE", requires = "repository", default_value = "auto")]
    pub engine: String,
    /// How requests travel.
    #[arg(long, value_enum, default_value_t = Wire::Http)]
    pub protocol: Wire,
    /// Offer so many times the workload's rate.
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,
    /// Run on so many lanes instead of the workload's.
    #[arg(long, value_name = "NUMBER")]
    pub lanes: Option<u32>,
    /// What is sent, and by whom.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wire {
    /// REST over HTTP/1.1.
    Http,
    /// REST over HTTP/2.
    Http2,
    /// gRPC.
    Grpc,
}

/// Examples and exit codes, below the options.
pub const PARITY_EXAMPLES: &str = "\
Examples:
  tessera parity loadtest/parity/ten-models.toml
  tessera parity loadtest/parity/one-model.toml --protocol grpc --rate-scale 1.5
  tessera parity mine.toml --repository ./models --map resnet=resnet50

Starts a server of its own on free ports, and ends it. Goals: goodput within 2 %, p50 within 5 %,
p99 within 10 %.
Exit code 0: within the goals. 1: it could not run. 2: wrong usage. 3: further apart.";
