//! The `tessera` binary: the command line, composed of serving and of the tools, if they are built in.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use node::devices::worker::{self, WorkerArgs};
use node::environment::Environment;
use node::output;
use server::fleet;
use server::reference::{self, Page};
use server::serve::{self, ServeArgs};

/// Serve many models on few devices, each within its latency objective.
///
/// Tessera speaks the Open Inference Protocol v2 (as KServe and Triton do) over HTTP and gRPC. Without a
/// command, it serves. Without a repository, it serves a small built-in model to try.
#[derive(Debug, Parser)]
#[command(name = "tessera", version, args_conflicts_with_subcommands = true, after_help = examples())]
struct Cli {
    /// What to do; `serve` if left out.
    #[command(subcommand)]
    command: Option<Command>,
    /// Options of `serve`.
    #[command(flatten)]
    serve: ServeArgs,
}

/// Examples of `--help`.
fn examples() -> String {
    #[cfg(feature = "tools")]
    let tools = cli::EXAMPLES;
    #[cfg(not(feature = "tools"))]
    let tools = "";
    format!("{SERVING}{tools}{OPTIONS}")
}

const SERVING: &str = "\
Examples:
  tessera                                          serve the built-in model on 127.0.0.1:8000
  tessera serve --repository ./models              serve a folder of models
  tessera serve --config tessera.toml --http 0.0.0.0:8000
";

const OPTIONS: &str = "
Every option can also be set in a file (`--config tessera.toml`) or in the environment:
TESSERA_LIMITS_BODY sets `limits.body`. Flags override the environment, which overrides the
file. `--print-config` shows every option, its value, and where it came from.";

const SERVE_EXAMPLES: &str = "\
Examples:
  tessera serve --repository ./models --http 127.0.0.1:9000
  tessera serve --set limits.body=16MiB --set models.resnet50.slo=50ms
  tessera serve --json --http 127.0.0.1:0     the first line of output is JSON, with the addresses

A repository is a folder with `<model>/<version>/model.onnx`, or just `<model>.onnx`. Write a
latency objective in the configuration file:

  [models.resnet50]
  slo = \"50ms\"

On SIGTERM or Ctrl-C, the server reports that it is not ready, answers the requests in
flight, and exits. A second signal ends it without waiting for them.

Exit code 0: stopped by a signal after every request was answered. 1: it could not start, or stopped with
requests unanswered. 2: wrong usage.";

const REFERENCE_EXAMPLES: &str = "\
Examples:
  tessera reference                      all pages
  tessera reference --out docs/reference
  tessera reference --man /usr/local/share/man/man1

Exit code 0: success. 1: a page cannot be written. 2: wrong usage.";

const FLEET_EXAMPLES: &str = "\
Examples:
  tessera fleet --namespace models             take part in the election of the leader of a fleet
  tessera pick --namespace models --service tessera-nodes
  tessera fleet --help                         the options, from the program `tessera-fleet`

Exit code 0: stopped by a signal. 1: it could not start, or `tessera-fleet` is missing. 2: wrong usage.";

/// Arguments for `tessera-fleet`.
#[derive(Args, Debug)]
struct Passed {
    /// Passed on as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve models (the default).
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Print the reference of this version in Markdown: settings, metrics, HTTP, gRPC and exit codes.
    #[command(after_help = REFERENCE_EXAMPLES)]
    Reference {
        /// Folder to write one file for each page to, instead of standard output.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Folder to write manual pages to instead: `tessera.1`, and one file for each command.
        #[arg(long, value_name = "DIR", conflicts_with = "out")]
        man: Option<PathBuf>,
    },
    /// Lead a fleet of servers on Kubernetes: runs `tessera-fleet fleet`.
    #[command(after_help = FLEET_EXAMPLES, disable_help_flag = true)]
    Fleet(Passed),
    /// Choose servers for the requests of a gateway: runs `tessera-fleet pick`.
    #[command(after_help = FLEET_EXAMPLES, disable_help_flag = true)]
    Pick(Passed),
    /// Run gpulets for a server that started this process.
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The tools.
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tools(cli::Command),
}

/// The value 1 keeps ONNX Runtime from writing usage data to the user's cache folder and sending it to its maker. The library
/// reads the variable when it is loaded, before a program can switch telemetry off in another way.
const DISABLE_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

fn main() -> ExitCode {
    models::give_back_large_blocks();
    if std::env::var_os(DISABLE_TELEMETRY).is_none() {
        #[expect(unsafe_code, reason = "no safe way to set a variable that a library in C reads")]
        // SAFETY: no other thread has started that could read the environment at the same time.
        unsafe {
            std::env::set_var(DISABLE_TELEMETRY, "1");
        }
    }
    run(Cli::parse(), &Environment::read())
}

/// Does what the command line says. Exit codes: 0 done, 1 it found or met a problem, 2 wrong usage.
fn run(cli: Cli, environment: &Environment) -> ExitCode {
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(arguments) => serve::run(&arguments, environment),
        Command::Reference { man: Some(folder), .. } => write_manual(&folder),
        Command::Reference { out, .. } => print_reference(out.as_deref()),
        Command::Fleet(passed) => Err(run_fleet_program("fleet", &passed)),
        Command::Pick(passed) => Err(run_fleet_program("pick", &passed)),
        Command::Worker(arguments) => return worker::run(&arguments, environment),
        #[cfg(feature = "tools")]
        Command::Tools(command) => cli::run(command, environment, Cli::command),
    };
    done.unwrap_or_else(|error| {
        output::complain(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Becomes `tessera-fleet`. Returns only if that fails.
fn run_fleet_program(command: &str, passed: &Passed) -> anyhow::Error {
    let error = fleet::program().arg(command).args(&passed.arguments).exec();
    anyhow::Error::new(error).context(fleet::missing_program(&format!("tessera {command}")))
}

fn print_reference(out: Option<&Path>) -> anyhow::Result<ExitCode> {
    for Page { file, text } in reference::pages(&mut Cli::command()) {
        match out {
            None => output::write(text.as_bytes()),
            Some(folder) => write_page(folder, &file, &text)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_manual(folder: &Path) -> anyhow::Result<ExitCode> {
    for Page { file, text } in reference::man::pages(&Cli::command())? {
        write_page(folder, &file, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(folder: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn mistakes_are_usage_errors() {
        for bad in [&["--set", "limits.body"][..], &["serve", "--nope"], &["--http"]] {
            assert!(Cli::try_parse_from([&["tessera"], bad].concat()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_pages_in_docs_are_those_of_this_binary() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
        for Page { file, text } in reference::pages(&mut Cli::command()) {
            let shown = std::fs::read_to_string(folder.join(&file)).unwrap_or_default();
            assert_eq!(shown, text, "run `cargo run --release -- reference --out docs/reference`");
        }
    }

    #[test]
    fn the_help_of_every_command_has_its_exit_codes() {
        let command = Cli::command();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Exit code 0: "), "{}", command.get_name());
        }
    }

    #[test]
    fn help_shows_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("tessera serve --repository ./models") && help.contains("TESSERA_LIMITS_BODY"));
    }
}
