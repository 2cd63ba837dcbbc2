//! The command line: what `--help` teaches, and flags as assignments of options.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Assignment, Origin};
use crate::load::arguments::{LOAD_EXAMPLES, LoadArgs};
use crate::parity::arguments::{PARITY_EXAMPLES, ParityArgs};
use crate::plan::arguments::{PlanArgs, plan_examples};
use crate::profile::arguments::{PROFILE_EXAMPLES, ProfileArgs};
use crate::simulate::arguments::{ARENA_EXAMPLES, ArenaArgs, SimulateArgs, simulate_examples};

/// Serve many models on few devices, each within its latency objective.
///
/// Tessera speaks the Open Inference Protocol v2 (as KServe and Triton do) over HTTP and gRPC. Without a
/// command it serves; without a repository it serves an embedded model, so that there is something to try.
#[derive(Debug, Parser)]
#[command(name = "tessera", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do; `serve` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `serve`.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const EXAMPLES: &str = "\
Examples:
  tessera                                          serve the embedded model on 127.0.0.1:8000
  tessera serve --repository ./models              serve a folder of models
  tessera serve --config tessera.toml --http 0.0.0.0:8000
  tessera check --repository ./models --load       say what is wrong before serving
  tessera models list                              ask a running server
  tessera doctor                                   devices, engines, ports: what was found
  tessera plan problem.toml --explain              how few devices your objectives need, and why
  tessera profile --repository ./models            how long batches take on this machine
  tessera simulate workload.toml --compare         what every policy would make of your traffic
  tessera load workload.toml --report load.html    the same traffic against a live server

Every option can also stand in a file (`--config tessera.toml`) or in the environment:
`limits.body` is TESSERA_LIMITS_BODY. A flag wins over the environment, the environment over
the file. `--print-config` shows every option, its value, and where it came from.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve models (the default).
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Say what is wrong with a configuration and a repository, without serving.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show what devices, engines and ports were found, which were not, and why.
    Doctor(DoctorArgs),
    /// List, load and unload models on a running server.
    #[command(after_help = MODELS_EXAMPLES)]
    Models(ModelsArgs),
    /// Measure how long batches of each model take on this machine's cores; resumable.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Find how few devices keep every objective: gpulets, batches, devices needed, and why.
    #[command(after_help = plan_examples())]
    Plan(Box<PlanArgs>),
    /// Run a workload through the scheduler in virtual time: goodput, latency, capacity, policies compared.
    #[command(after_help = simulate_examples())]
    Simulate(SimulateArgs),
    /// Rank all policies on the standard workloads, and write the page that shows it.
    #[command(after_help = ARENA_EXAMPLES)]
    Arena(ArenaArgs),
    /// Send a workload to a live server, measure every answer against its objective, find its capacity.
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Box<LoadArgs>),
    /// Set the simulator beside a live server: the same workload through both.
    #[command(after_help = PARITY_EXAMPLES)]
    Parity(Box<ParityArgs>),
    /// Run gpulets for a server that started this process.
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  tessera completions bash > /etc/bash_completion.d/tessera")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// What a worker is to do.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkerArgs {
    /// Tell which GPUs there are, and end.
    #[arg(long)]
    pub describe: bool,
    /// How GPUs are to be shared.
    #[arg(long)]
    pub backend: Option<String>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  tessera serve --repository ./models --http 127.0.0.1:9000
  tessera serve --set limits.body=16MiB --set models.resnet50.slo=50ms
  tessera serve --json --http 127.0.0.1:0     the first line of output is JSON, with the addresses

A repository is a folder with `<model>/<version>/model.onnx`, or just `<model>.onnx`. Write a
latency objective in the configuration file:

  [models.resnet50]
  slo = \"50ms\"

SIGTERM or Ctrl-C drains: not ready at once, requests in flight are answered, exit code 0.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tessera check --config tessera.toml
  tessera check --repository ./models --load --json

Exit code 0: nothing is wrong. 1: something is, and every mistake is listed with its place.";

const MODELS_EXAMPLES: &str = "\
Examples:
  tessera models list
  tessera models load resnet50
  tessera models --server 10.0.0.7:8000 unload resnet50";

/// Where configuration comes from.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Configuration file. Default: `tessera.toml` in the repository, if there is one.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of models [repository.path]
    #[arg(long, short, value_name = "DIR")]
    pub repository: Option<String>,
    /// Set any option, such as `limits.body=16MiB`; may be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Engine of models that name none: auto, tract, ort or synthetic [repository.engine]
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// ONNX Runtime's shared library [repository.ort_library]
    #[arg(long, value_name = "FILE")]
    pub ort_library: Option<String>,
    /// Address of the REST interface; port 0 is any free one [server.http]
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,
    /// Address of the gRPC interface [server.grpc]
    #[arg(long, value_name = "ADDRESS")]
    pub grpc: Option<String>,
    /// Address of /metrics [server.metrics]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Load `all` models at start, or only those asked for (`explicit`) [repository.load]
    #[arg(long, value_name = "WHICH")]
    pub load_mode: Option<String>,
    /// Number of lanes the cores are cut into [lanes.count]
    #[arg(long, value_name = "NUMBER")]
    pub lanes: Option<String>,
    /// Time for requests in flight to finish after SIGTERM [server.grace]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Least level that is logged [server.log_level]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Shape of log lines: auto, human or json [server.log_format]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// Options of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Write one line of JSON to standard output once models are loaded, instead of the greeting.
    #[arg(long)]
    pub json: bool,
    /// Check the configuration and exit.
    #[arg(long)]
    pub check_config: bool,
    /// Print the effective configuration, with where each value came from, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckArgs {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Also load every model with its engine.
    #[arg(long)]
    pub load: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug, Default)]
pub struct DoctorArgs {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `models`.
#[derive(Args, Clone, Debug)]
pub struct ModelsArgs {
    /// Address of the server's REST interface.
    #[arg(long, short, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub server: String,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    /// What to do; `list` if left out.
    #[command(subcommand)]
    pub action: Option<ModelsAction>,
}

/// What to do with a server's models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsAction {
    /// All models of the repository, and their state.
    List,
    /// Load or reload a model; the old version serves until the new one is ready.
    Load {
        /// Its name.
        model: String,
    },
    /// Unload a model; queued requests are answered first.
    Unload {
        /// Its name.
        model: String,
    },
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("expected OPTION=VALUE, such as limits.body=16MiB")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

impl ConfigArgs {
    /// The flags as assignments; those with a name of their own win over `--set`.
    pub fn assignments(&self) -> Vec<Assignment> {
        let set = self.set.iter().map(|(path, raw)| Assignment {
            path: path.clone(),
            raw: raw.clone(),
            origin: Origin::Flag("--set"),
        });
        let named = [
            ("--repository", "repository.path", &self.repository),
            ("--engine", "repository.engine", &self.engine),
            ("--ort-library", "repository.ort_library", &self.ort_library),
            ("--http", "server.http", &self.http),
            ("--grpc", "server.grpc", &self.grpc),
            ("--metrics", "server.metrics", &self.metrics),
            ("--load-mode", "repository.load", &self.load_mode),
            ("--lanes", "lanes.count", &self.lanes),
            ("--grace", "server.grace", &self.grace),
            ("--log-level", "server.log_level", &self.log_level),
            ("--log-format", "server.log_format", &self.log_format),
        ];
        let named = named.into_iter().filter_map(|(flag, path, value)| {
            let raw = value.clone()?;
            Some(Assignment { path: path.to_owned(), raw, origin: Origin::Flag(flag) })
        });
        set.chain(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(arguments: &[&str]) -> Cli {
        Cli::try_parse_from([&["tessera"], arguments].concat()).unwrap()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_the_default_and_takes_the_same_flags() {
        let bare = parse(&["--http", "127.0.0.1:0", "--json"]);
        assert!(bare.command.is_none() && bare.serve.json);
        let Some(Command::Serve(named)) = parse(&["serve", "--http", "127.0.0.1:0", "--json"]).command else {
            panic!("expected serve");
        };
        assert_eq!(named.config.assignments().len(), 1);
        assert_eq!(bare.serve.config.http, named.config.http);
    }

    #[test]
    fn flags_become_assignments_and_named_ones_come_last() {
        let cli = parse(&["--http", "127.0.0.1:1", "--set", "server.http = 127.0.0.1:2", "--lanes", "3"]);
        let found: Vec<_> = cli
            .serve
            .config
            .assignments()
            .into_iter()
            .map(|a| (a.path, a.raw, a.origin.to_string()))
            .collect();
        let expected = [
            ("server.http", "127.0.0.1:2", "flag --set"),
            ("server.http", "127.0.0.1:1", "flag --http"),
            ("lanes.count", "3", "flag --lanes"),
        ];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    }

    #[test]
    fn commands_parse() {
        assert!(matches!(parse(&["doctor", "--json"]).command, Some(Command::Doctor(args)) if args.json));
        assert!(matches!(parse(&["check", "--load"]).command, Some(Command::Check(args)) if args.load));
        let Some(Command::Models(models)) = parse(&["models", "--server", "h:1", "load", "m"]).command else {
            panic!("expected models");
        };
        assert!(matches!(models.action, Some(ModelsAction::Load { model }) if model == "m"));
        for bad in [&["--set", "limits.body"][..], &["models", "load"], &["serve", "--nope"], &["--http"]] {
            assert!(Cli::try_parse_from([&["tessera"], bad].concat()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn help_shows_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("tessera serve --repository ./models") && help.contains("TESSERA_LIMITS_BODY"));
    }
}
