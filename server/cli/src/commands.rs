//! The commands and what each does.

use std::process::ExitCode;

use clap::Subcommand;
use node::config::configure;
use node::environment::Environment;
use node::output;

use crate::arguments::{CheckArgs, ConfigCommandArgs, DoctorArgs, ExplainArgs, ModelsArgs};
use crate::colocate::arguments::{COLOCATE_EXAMPLES, ColocateArgs};
use crate::health::{self, HEALTH_EXAMPLES, HealthArgs};
use crate::job::arguments::{JOB_EXAMPLES, JobArgs};
use crate::key::{KEY_EXAMPLES, KeyArgs};
use crate::load::arguments::{LOAD_EXAMPLES, LoadArgs};
use crate::parallel::arguments::{PARALLEL_EXAMPLES, ParallelArgs};
use crate::parity::arguments::{PARITY_EXAMPLES, ParityArgs};
use crate::plan::arguments::{PlanArgs, plan_examples};
use crate::profile::arguments::{PROFILE_EXAMPLES, ProfileArgs};
use crate::simulate::arguments::{ARENA_EXAMPLES, ArenaArgs, SimulateArgs, simulate_examples};
use crate::split::arguments::{SPLIT_EXAMPLES, SplitArgs};
use crate::tune::arguments::{TUNE_EXAMPLES, TuneArgs};
use crate::variants::arguments::{VARIANTS_EXAMPLES, VariantsArgs};
use crate::{
    check, colocate, config_command, doctor, explain, explain_request, job, key, load, models_command,
    parallel, parity, plan, profile, simulate, split, tune, variants,
};

/// Examples of the tools for `tessera --help`.
pub const EXAMPLES: &str = "  tessera check --repository ./models --load       find mistakes before serving
  tessera explain --outcome refused                list the last refused requests and their reasons
  tessera models list                              list the models of a running server
  tessera job submit --model m --input rows.jsonl  run the rows of a file behind other requests
  tessera key new --role infer --tenant search     make an API key
  tessera config diff new.toml                     show what a file would change on a running server
  tessera doctor                                   show the devices, engines and ports found
  tessera plan problem.toml --explain              find the fewest devices for your objectives, and why
  tessera profile --repository ./models            measure batch times on this machine
  tessera tune resnet50 --slo 100ms                find the best engine, lanes, threads and batch of a model
  tessera split resnet50 --out ./pipelines         split a model into stages for different devices
  tessera variants measure digits --labelled d.npz  measure the quality of a family's models
  tessera simulate workload.toml --compare         compare all policies on your traffic
  tessera load workload.toml --report load.html    send the same traffic to a live server
";

const CHECK_EXAMPLES: &str = "\
Examples:
  tessera check --config tessera.toml
  tessera check --repository ./models --load --json
  tessera check --explain limits.body

Exit code 0: no mistakes. 1: mistakes, each listed with its place. 2: wrong usage.";

const CONFIG_EXAMPLES: &str = "\
Examples:
  tessera config show                     settings that differ from their defaults
  tessera config show limits --all
  tessera config diff new.toml            what would change with this file
  tessera config diff && tessera config reload
  tessera config show --server 10.0.0.7:8003 --json

Exit code 0: success. 1: the server refused the file or did not respond; the message has its reason. 2: wrong usage.";

const DOCTOR_EXAMPLES: &str = "\
Example:
  tessera doctor --json

Exit code 0: the machine can serve. 1: a problem, named in its row. 2: wrong usage.";

const COMPLETIONS_EXAMPLES: &str = "\
Example:
  tessera completions bash > /etc/bash_completion.d/tessera

Exit code 0: success. 2: wrong usage.";

const MODELS_EXAMPLES: &str = "\
Examples:
  tessera models list
  tessera models load resnet50
  tessera models rollout resnet50             how a new version does; also promote and rollback
  tessera models unload resnet50 --server 10.0.0.7:8000

Exit code 0: success. 1: the server refused or did not respond; the message has its reason. 2: wrong usage.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tessera explain 5f2a1c07-0000001b                     one request, by the x-request-id of its response
  tessera explain --outcome refused --model resnet50    the last refused requests of a model
  tessera explain --server 10.0.0.7:8000 --json

Exit code 0: success. 1: the server does not know the request, or did not respond. 2: wrong usage.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find mistakes in a configuration and a repository, without serving.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show, compare and reload the configuration of a running server.
    #[command(after_help = CONFIG_EXAMPLES)]
    Config(ConfigCommandArgs),
    /// Show which devices, engines and ports were found, which were not, and why.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Explain why a request to a running server was refused, late or slow.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Ask a running server whether it is ready. For health checks of containers.
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArgs),
    /// List, load, unload and roll out models on a running server.
    #[command(after_help = MODELS_EXAMPLES)]
    Models(ModelsArgs),
    /// Run the rows of files through a model of a running server, behind its other requests.
    #[command(after_help = JOB_EXAMPLES)]
    Job(JobArgs),
    /// Make API keys for `identity.keys`.
    #[command(after_help = KEY_EXAMPLES)]
    Key(KeyArgs),
    /// Measure how long batches of each model take on this machine's cores. Can be resumed.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Find the settings of an ONNX model with the highest capacity at an objective: engine, lanes, threads, batch. Can be resumed.
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// Split an ONNX model into stages that run on different devices, check that they equal it, and write them as an ensemble.
    #[command(after_help = SPLIT_EXAMPLES)]
    Split(Box<SplitArgs>),
    /// Make variants of a model, and measure their quality, for families that answer with less quality before they refuse.
    #[command(after_help = VARIANTS_EXAMPLES)]
    Variants(VariantsArgs),
    /// Find the fewest devices that keep every objective: gpulets, batch sizes, and why.
    #[command(after_help = plan_examples())]
    Plan(Box<PlanArgs>),
    /// Run a workload through the scheduler in virtual time: goodput, latency, capacity, comparison of policies.
    #[command(after_help = simulate_examples())]
    Simulate(SimulateArgs),
    /// Rank all batching policies on the standard workloads and write docs/arena.md.
    #[command(after_help = ARENA_EXAMPLES)]
    Arena(ArenaArgs),
    /// Compare published policies for sharing GPUs between online and offline work: Orion, REEF, TGS, Salus, MuxFlow.
    #[command(after_help = COLOCATE_EXAMPLES)]
    Colocate(ColocateArgs),
    /// Plan models that are split over several devices: placements (AlpaServe), partitions of layers, layouts (HexGen). Simulated.
    #[command(after_help = PARALLEL_EXAMPLES)]
    Parallel(ParallelArgs),
    /// Send a workload to a live server, measure latency and goodput, find its capacity.
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Box<LoadArgs>),
    /// Compare the simulator with a live server on the same workload.
    #[command(after_help = PARITY_EXAMPLES)]
    Parity(Box<ParityArgs>),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Runs a command. `whole` is the command line for completions.
///
/// # Errors
/// The reason if the command fails.
pub fn run(
    command: Command,
    environment: &Environment,
    whole: impl FnOnce() -> clap::Command,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(CheckArgs { explain: Some(query), json, .. }) => explain::run(&query, json),
        Command::Check(arguments) => {
            let config = configure(&arguments.config, environment);
            check::run(&config, environment, arguments.load, arguments.json)
        }
        Command::Config(arguments) => config_command::run(&arguments),
        Command::Doctor(arguments) => {
            let config = configure(&arguments.config, environment);
            doctor::run(&config, environment, arguments.json)
        }
        Command::Explain(arguments) => explain_request::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Models(arguments) => models_command::run(&arguments),
        Command::Job(arguments) => job::run(&arguments, environment.stderr_is_terminal),
        Command::Key(arguments) => key::run(&arguments),
        Command::Profile(arguments) => match configure(&arguments.config, environment) {
            Ok(config) => profile::run(&config, &arguments, environment),
            Err(problems) => Ok(problems.report()),
        },
        Command::Tune(arguments) => match configure(&arguments.config, environment) {
            Ok(config) => tune::run(&config, &arguments, environment),
            Err(problems) => Ok(problems.report()),
        },
        Command::Split(arguments) => match configure(&arguments.config, environment) {
            Ok(config) => split::run(&config, &arguments, environment),
            Err(problems) => Ok(problems.report()),
        },
        Command::Variants(arguments) => match configure(arguments.config(), environment) {
            Ok(config) => variants::run(&config, &arguments, environment),
            Err(problems) => Ok(problems.report()),
        },
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments, environment),
        Command::Arena(arguments) => simulate::arena::run(&arguments, environment),
        Command::Colocate(arguments) => colocate::run(&arguments),
        Command::Parallel(arguments) => parallel::run(&arguments),
        Command::Load(arguments) => load::run(&arguments, environment),
        Command::Parity(arguments) => parity::run(&arguments, environment),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut whole(), "tessera", &mut script);
            output::write(&script);
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::ModelsAction;
    use crate::testing::Cli;
    use clap::{CommandFactory as _, Parser as _};

    fn parse(arguments: &[&str]) -> Cli {
        Cli::try_parse_from([&["tessera"], arguments].concat()).unwrap()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_parse() {
        assert!(matches!(parse(&["doctor", "--json"]).command, Some(Command::Doctor(args)) if args.json));
        assert!(matches!(parse(&["check", "--load"]).command, Some(Command::Check(args)) if args.load));
        let Some(Command::Models(models)) = parse(&["models", "--server", "h:1", "load", "m"]).command else {
            panic!("expected models");
        };
        assert!(matches!(models.action, Some(ModelsAction::Load { model }) if model == "m"));
        for bad in [
            &["check", "--set", "limits.body"][..],
            &["models", "load"],
            &["doctor", "--nope"],
            &["check", "--http"],
        ] {
            assert!(Cli::try_parse_from([&["tessera"], bad].concat()).is_err(), "{bad:?}");
        }
    }
}
