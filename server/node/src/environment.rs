//! Environment of the process: read once in `main` and passed on as a value.

use std::ffi::OsString;
use std::io::IsTerminal as _;

/// Environment and terminal.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Environment variables that are valid UTF-8.
    pub variables: Vec<(String, String)>,
    /// Where ONNX Runtime is searched for.
    pub ort: models::engine::ort::Environment,
    /// Whether standard error is a terminal.
    pub stderr_is_terminal: bool,
    /// Whether standard output is a terminal that shows colours.
    pub stdout_is_coloured: bool,
    /// The command line, the program's name included.
    pub command_line: Vec<String>,
}

impl Environment {
    /// The value of a variable, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Reads the environment.
    pub fn read() -> Self {
        let variable =
            |name: &str| -> Option<OsString> { std::env::var_os(name).filter(|value| !value.is_empty()) };
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            variables,
            ort: models::engine::ort::Environment {
                program: std::env::current_exe().ok(),
                ..models::engine::ort::Environment::of_variables(variable)
            },
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdout_is_coloured: std::io::stdout().is_terminal() && variable("NO_COLOR").is_none(),
            command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }
}
