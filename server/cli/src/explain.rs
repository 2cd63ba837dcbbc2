//! `tessera check --explain KEY`: one setting, or the settings of a section.

use std::process::ExitCode;

use node::config::reference::{Setting, find};
use node::output;

/// Prints the settings that `query` names. Exit code 2 if no setting has that name.
pub fn run(query: &str, json: bool) -> anyhow::Result<ExitCode> {
    let found = match find(query) {
        Ok(found) => found,
        Err(message) => {
            output::complain(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    if json {
        output::line(&serde_json::to_string(&found)?);
    } else {
        let entries: Vec<String> = found.iter().map(Setting::explain).collect();
        output::write(entries.join("\n").as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}
