//! `tessera key`: makes API keys.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use identity::{DEFAULT_TENANT, NewKey, Role, check_name, new_key};
use node::output;
use serde::Serialize;

pub const KEY_EXAMPLES: &str = "\
Examples:
  tessera key new --role infer --tenant search
  tessera key new --role operate --name alice --json
  tessera key new --role read --json | jq -r .line >> /etc/tessera/keys     the key itself is lost

The line belongs in the file that `identity.keys` names. A running server reads the file again.

Exit code 0: success. 1: the system gives no random numbers. 2: wrong usage.";

/// Arguments of `tessera key`.
#[derive(Args, Clone, Debug)]
pub struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What to do with keys.
#[derive(Clone, Debug, Subcommand)]
pub enum KeyAction {
    /// Make a key and the line for the file of `identity.keys`.
    #[command(after_help = KEY_EXAMPLES)]
    New(NewArgs),
}

/// Arguments of `tessera key new`.
#[derive(Args, Clone, Debug)]
pub struct NewArgs {
    /// What the caller may do: `infer`, `read`, or `operate`, which includes both.
    #[arg(long)]
    pub role: Role,
    /// Whose share of the server it uses.
    #[arg(long, default_value = DEFAULT_TENANT, value_parser = name)]
    pub tenant: String,
    /// Name of the caller in logs.
    #[arg(long, value_parser = name)]
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

#[derive(Serialize)]
struct Made<'a> {
    key: &'a str,
    line: &'a str,
}

/// Runs the command.
///
/// # Errors
/// The system gives no random numbers.
pub fn run(KeyArgs { action: KeyAction::New(arguments) }: &KeyArgs) -> anyhow::Result<ExitCode> {
    let made = new_key().map_err(anyhow::Error::msg)?;
    output::write(shown(&made, arguments)?.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The key and its line, as the terminal shows them.
fn shown(NewKey { key, sha256 }: &NewKey, arguments: &NewArgs) -> anyhow::Result<String> {
    let NewArgs { role, tenant, name, json } = arguments;
    let mut line = format!("{sha256} {role} {tenant}");
    if let Some(name) = name {
        line.push(' ');
        line.push_str(name);
    }
    if *json {
        return Ok(serde_json::to_string(&Made { key, line: &line })? + "\n");
    }
    Ok(format!(
        "The key, shown only now. Send it as the header `authorization: Bearer KEY` or `x-api-key: KEY`:\n\n  {key}\n\n\
         The line for the file of `identity.keys`, which holds the hash of the key only:\n\n  {line}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::ApiKeys;

    #[test]
    fn the_line_is_that_of_the_key() {
        let made = new_key().unwrap();
        for name in [None, Some("alice".to_owned())] {
            let arguments = NewArgs { role: Role::Operate, tenant: "ops".to_owned(), name, json: true };
            let shown: serde_json::Value = serde_json::from_str(&shown(&made, &arguments).unwrap()).unwrap();
            let keys = ApiKeys::parse(shown["line"].as_str().unwrap()).unwrap();
            let caller = keys.find(shown["key"].as_str().unwrap().as_bytes()).unwrap();
            assert_eq!((caller.role, &*caller.tenant), (Role::Operate, "ops"));
        }
        let arguments = NewArgs { role: Role::Infer, tenant: "t".to_owned(), name: None, json: false };
        let text = shown(&made, &arguments).unwrap();
        assert_eq!(text.matches(&made.key).count(), 1);
        assert!(text.contains(&format!("\n  {} infer t\n", made.sha256)), "{text}");
    }
}
