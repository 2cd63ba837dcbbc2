//! Mistakes in what people write.

use std::fmt;

/// The name of the file that is being read, until its reader gives the real one.
const MAIN_FILE: &str = "workload.toml";

/// A mistake in a file or an option: the place, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The file that is being read, or one that it names. Empty if the fault is in no file, or was found long after
    /// the file had been read.
    pub file: String,
    /// Line in that file, from 1. `None` if the fault is in no single line.
    pub line: Option<u32>,
    /// Path of the key, like `models.resnet.slo`. Empty if the text is not TOML.
    pub field: String,
    /// What was wrong and what would be right.
    pub problem: String,
}

impl Fault {
    /// A fault in the file that is being read; its line is found later.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { file: MAIN_FILE.to_owned(), line: None, field: field.into(), problem: problem.into() }
    }

    /// A fault outside of any file.
    pub fn apart(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { file: String::new(), ..Self::new(field, problem) }
    }

    /// The same fault, found in a file that the main one names.
    #[must_use]
    pub fn inside(mut self, file: &str, line: Option<u32>) -> Self {
        file.clone_into(&mut self.file);
        self.line = line;
        self
    }

    /// Whether the file that is being read is at fault.
    pub fn is_in_main(&self) -> bool {
        self.file == MAIN_FILE
    }

    /// Sets the name of the file that is being read, unless the fault is in another file.
    #[must_use]
    pub fn named(mut self, file: &str) -> Self {
        if self.is_in_main() {
            file.clone_into(&mut self.file);
        }
        self
    }
}

impl fmt::Display for Fault {
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
