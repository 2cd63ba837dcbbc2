//! From the command line to what is done: configuration, logs, and one function a command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::{CheckArgs, Cli, Command, ConfigArgs, ServeArgs};
use crate::config::{Config, Problem, Problems, Sources};
use crate::surroundings::Surroundings;
use crate::{
    check, devices, doctor, load, logs, models_command, output, parity, plan, profile, serve, simulate,
};

/// Name of the configuration file that a repository may hold.
const REPOSITORY_CONFIG: &str = "tessera.toml";
/// Largest configuration file.
const CONFIG_BYTES: u64 = 4 << 20;

/// Does what the command line says. Exit codes: 0 done, 1 it found or met a problem, 2 wrong usage.
pub fn run(cli: Cli, surroundings: &Surroundings) -> ExitCode {
    let done = match cli.command {
        None => serve_or_show(&cli.serve, surroundings),
        Some(Command::Serve(arguments)) => serve_or_show(&arguments, surroundings),
        Some(Command::Check(arguments)) => check_all(&arguments, surroundings),
        Some(Command::Doctor(arguments)) => {
            let config = configure(&arguments.config, surroundings);
            doctor::run(&config, surroundings, arguments.json)
        }
        Some(Command::Models(arguments)) => models_command::run(&arguments),
        Some(Command::Profile(arguments)) => match configure(&arguments.config, surroundings) {
            Ok(config) => profile::run(&config, &arguments, surroundings),
            Err(problems) => Ok(complain(&problems)),
        },
        Some(Command::Plan(arguments)) => plan::run(&arguments),
        Some(Command::Simulate(arguments)) => simulate::run(&arguments, surroundings),
        Some(Command::Arena(arguments)) => simulate::arena::run(&arguments, surroundings),
        Some(Command::Load(arguments)) => load::run(&arguments, surroundings),
        Some(Command::Parity(arguments)) => parity::run(&arguments, surroundings),
        Some(Command::Worker(arguments)) => return devices::worker::run(&arguments, surroundings),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tessera", &mut script);
            output::write(&script);
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        output::complain(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn serve_or_show(arguments: &ServeArgs, surroundings: &Surroundings) -> anyhow::Result<ExitCode> {
    let config = match configure(&arguments.config, surroundings) {
        Ok(config) => config,
        Err(problems) => return Ok(complain(&problems)),
    };
    if arguments.print_config {
        output::write(config.print().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.check_config {
        output::write(b"the configuration is sound\n");
        return Ok(ExitCode::SUCCESS);
    }
    logs::install(&config.server, surroundings.stderr_is_terminal)?;
    serve::run(config, surroundings, arguments.json)
}

fn check_all(arguments: &CheckArgs, surroundings: &Surroundings) -> anyhow::Result<ExitCode> {
    let config = configure(&arguments.config, surroundings);
    check::run(&config, surroundings, arguments.load, arguments.json)
}

fn complain(problems: &Problems) -> ExitCode {
    for problem in &problems.0 {
        output::complain(&format!("error: {problem}"));
    }
    ExitCode::FAILURE
}

/// Reads all sources and merges them.
fn configure(arguments: &ConfigArgs, surroundings: &Surroundings) -> Result<Config, Problems> {
    let path = arguments.config.clone().or_else(|| repository_config(arguments, surroundings));
    let file = match path {
        None => None,
        Some(path) => Some(read_config(&path).map(|text| (path.clone(), text)).map_err(|error| {
            Problems(vec![Problem {
                path: String::new(),
                message: format!("{error:#}"),
                origin: crate::config::Origin::Flag("--config"),
            }])
        })?),
    };
    Config::load(&Sources {
        file,
        environment: surroundings.variables.clone(),
        flags: arguments.assignments(),
    })
}

/// A repository may bring the configuration of its models.
fn repository_config(arguments: &ConfigArgs, surroundings: &Surroundings) -> Option<PathBuf> {
    let from_environment = || {
        surroundings
            .variables
            .iter()
            .find(|(name, _)| name == "TESSERA_REPOSITORY_PATH")
            .map(|(_, path)| path)
    };
    let repository = arguments.repository.as_ref().or_else(from_environment)?;
    let path = Path::new(repository).join(REPOSITORY_CONFIG);
    path.is_file().then_some(path)
}

fn read_config(path: &Path) -> anyhow::Result<String> {
    let length = fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?.len();
    anyhow::ensure!(
        length <= CONFIG_BYTES,
        "`{}` has {length} bytes: expected at most {CONFIG_BYTES}",
        path.display()
    );
    fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}
