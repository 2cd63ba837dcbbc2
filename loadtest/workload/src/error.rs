//! What is wrong with a workload, and where.

use std::fmt;

/// The name that a workload's own text goes by until its reader says better.
const MAIN_FILE: &str = "workload.toml";

/// A workload that cannot be used: the place, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct WorkloadError {
    /// The file: the workload itself, or a trace or profile that it names; empty when the fault lies in no file, or
    /// was found long after the file had been read.
    pub file: String,
    /// Line in that file, from 1; none when the fault lies in no one line.
    pub line: Option<u32>,
    /// Path of the key, like `models.resnet.slo`; empty when the text is no TOML at all.
    pub field: String,
    /// What was wrong and what would be right.
    pub problem: String,
}

impl WorkloadError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { file: MAIN_FILE.to_owned(), line: None, field: field.into(), problem: problem.into() }
    }

    /// A fault in what is in no file.
    pub(crate) fn apart(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { file: String::new(), ..Self::new(field, problem) }
    }

    /// The same fault, found in a file that the workload names.
    pub(crate) fn inside(mut self, file: &str, line: Option<u32>) -> Self {
        file.clone_into(&mut self.file);
        self.line = line;
        self
    }

    /// Whether the workload's own text is at fault.
    pub(crate) fn is_in_main(&self) -> bool {
        self.file == MAIN_FILE
    }

    /// Gives the workload its name in messages, unless the fault lies in a file that it names.
    #[must_use]
    pub fn named(mut self, file: &str) -> Self {
        if self.is_in_main() {
            file.clone_into(&mut self.file);
        }
        self
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&self.file)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}
