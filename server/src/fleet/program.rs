//! The program `tessera-fleet`: a client of Kubernetes and the protocol of Envoy's external processing, which only a fleet uses.

use std::path::PathBuf;
use std::process::Command;

/// Name of its file.
const PROGRAM: &str = "tessera-fleet";

/// The one in the folder of this program, or else the first in PATH.
pub fn program() -> Command {
    let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    Command::new(own.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM)))
}

/// Says where the program is expected, for an error of `user`, which needs it.
pub fn missing_program(user: &str) -> String {
    format!("`{user}` is in the program `{PROGRAM}`, expected next to `tessera` or in PATH")
}
