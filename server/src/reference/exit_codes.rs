//! Exit codes of the commands, from their help.

use clap::Command;

use super::{code, table};

const INTRODUCTION: &str = "\
# Exit codes

0 means success and 2 a wrong command line, for every command. A process that a signal ended has the code that the shell gives it, for
example 137 after SIGKILL.
";

pub fn page(command: &mut Command) -> String {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let rows = commands.map(|command| [code(&format!("tessera {}", command.get_name())), codes(command)]);
    format!("{INTRODUCTION}\n{}", table(["command", "exit codes"], rows))
}

/// What the help says about exit codes.
fn codes(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some((_, codes)) = help.split_once("Exit code ") else { return String::new() };
    codes.split_whitespace().collect::<Vec<_>>().join(" ")
}
