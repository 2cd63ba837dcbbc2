//! The formats.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Format of the rows or the results of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One JSON object a line.
    #[default]
    #[serde(rename = "jsonl")]
    JsonLines,
    /// One NumPy array, whose first dimension is the rows.
    Npy,
    /// NumPy arrays by name, with the same number of rows.
    Npz,
    /// A Parquet file, whose columns are tensors by name.
    Parquet,
}

/// A word that is not the name of a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: expected `jsonl`, `npy`, `npz` or `parquet`")]
pub struct UnknownFormat(pub String);

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::JsonLines, Self::Npy, Self::Npz, Self::Parquet];

    /// Its name, which is also the usual ending of its files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Parquet => "parquet",
        }
    }

    /// The format that the ending of a file names.
    pub fn of_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        let ending = if ending == "ndjson" { Self::JsonLines.word() } else { ending.as_str() };
        Self::ALL.into_iter().find(|format| format.word() == ending)
    }

    /// The media type of its files.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::JsonLines => "application/x-ndjson",
            Self::Npy | Self::Npz => "application/octet-stream",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }

    /// Whether rows that cannot be answered have a place in results of this format.
    pub const fn has_errors(self) -> bool {
        matches!(self, Self::JsonLines | Self::Parquet)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        found.ok_or_else(|| UnknownFormat(word.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_file_names_its_format() {
        for format in Format::ALL {
            assert_eq!(format.word().parse(), Ok(format));
            assert_eq!(
                Format::of_path(Path::new(&format!("a/b.{}", format.word().to_uppercase()))),
                Some(format)
            );
        }
        assert_eq!(Format::of_path(Path::new("a.ndjson")), Some(Format::JsonLines));
        assert_eq!(Format::of_path(Path::new("a.csv")), None);
        assert_eq!(
            "csv".parse::<Format>().unwrap_err().to_string(),
            "`csv`: expected `jsonl`, `npy`, `npz` or `parquet`"
        );
    }
}
